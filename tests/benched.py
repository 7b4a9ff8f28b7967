"""Benchmarks by pytest in a process of their own: what is asked for, and how the items ended."""

from contextlib import closing

from kernelmark.bench.record.store import Store

NT = "gemm/m8n8k8/f32/NT"
BENCH = ("-m", "pytest", "--pyargs", "kernelmark.bench", "-p", "no:cacheprovider", "-q", "-rA", "--tb=short")
ONLY = (*BENCH, "--benchmark-only", "--km-max-time", "0.02", "--km-db", "results.db")


def rows_in(folder):
    """The rows of the last run that the benchmarks in a folder stored."""
    with closing(Store(folder / "results.db")) as store:
        return [row for row, _ in store.results(store.run_ids()[-1])]


def outcomes(done):
    """The outcome of each kernel's item."""
    found = {}
    for line in done.stdout.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("PASSED", "FAILED") and "[" in rest:
            found[rest.partition("[")[2].partition("|")[0]] = outcome
    return found
