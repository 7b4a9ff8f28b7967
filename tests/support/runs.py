"""Runs of small problems: their command, suite and kernels, and the rows that a store shows to other processes."""

import sqlite3
from contextlib import closing

from kernelmark import kernel
from kernelmark.bench.record.store import Store
from support.plugins import FAULTS

KERNELS = ("copy/numpy.copyto", "copy/bad.honest")
PROBLEMS = 60
SUITE = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 5\nm = {{linear = [1, {}, 1]}}\n"
QUICK = ("--mode", "hot", "--max-time", "0.01", "--no-ceilings", "--threads", "1", "--plugin", FAULTS)
WORDS = ("run", "s.toml", *QUICK, "--kernels", KERNELS[0], "--kernels", KERNELS[1], "--db", "r.db")


def query(path, sql):
    """Return the result of a query, read as another process reads the store."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
        db.row_factory = sqlite3.Row
        return db.execute(sql).fetchall()


def visible(path):
    """Return the rows of a store with one run, by case; none if there is no store yet."""
    try:
        rows = query(path, "SELECT * FROM result")
    except sqlite3.OperationalError:
        return {}
    by_case = {row["case"]: row for row in rows}
    assert len(by_case) == len(rows)
    return by_case


def all_are_there_and_ok(path, problems=PROBLEMS):
    by_case = visible(path)
    return len(by_case) == problems * len(KERNELS) and {row["status"] for row in by_case.values()} == {"ok"}


SMALL = "copy/m3n5/f32"
#: Much longer than a call, which takes 3 ms.
TIMEOUT_S = 0.5


def declare(name, set_up, **options):
    kernel("copy", name=name, **{"provider": "mine", "device": "cpu", "numerics": "exact", **options})(set_up)


def copy(problem, x):
    def launch():
        x.b[...] = x.a

    return launch


def nothing(problem, x):
    return lambda: None


NT = "gemm/m8n8k8/f32/NT"
BENCH = ("-m", "pytest", "--pyargs", "kernelmark.bench", "-p", "no:cacheprovider", "-q", "-rA", "--tb=short")
ONLY = (*BENCH, "--benchmark-only", "--km-max-time", "0.02", "--km-db", "results.db")


def rows_in(folder):
    with Store(folder / "results.db") as store:
        return [row for row, _ in store.results(store.run_ids()[-1])]


def outcomes(done):
    by_kernel = {}
    for line in done.stdout.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("PASSED", "FAILED") and "[" in rest:
            by_kernel[rest.partition("[")[2].partition("|")[0]] = outcome
    return by_kernel
