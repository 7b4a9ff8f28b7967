"""What transfers and aggregation promise, measured: rows of (promise, found, holds) for `make bars`.

`python tools/aggregate_bars.py` measures these alone; it takes six minutes on two quiet cores, most of it to judge.
"""

import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from encode_bars import encode_bars
from honest import alarms
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.overlap import Overlap, overlaps
from kernelmark.bench.selftest.wrong.aggregate import CHEATS, COMPRESSED
from kernelmark.bench.selftest.wrong.library import trial
from kernelmark.kernels.aggregate._formats import FORMATS
from throughput_bars import main
from took import COMMAND

DRAWS, PROBLEMS, SEED = 20, 200, 0
SUM, LEAST_OF_CEILING, RUNS = "aggregate/w4n51200000/f32", 0.8, 9
ELEMENTS, WORKS, LEAST_OF_OVERLAP = 51_200_000, (16, 64, 256), 0.8
WIRE = {"onebit": "28.4", "int8": "3.94"}


def aggregate_bars() -> Iterator[tuple[str, str, bool]]:
    """The checks first, which take no quiet machine; then what is timed."""
    yield from cheat_bars()
    yield honest_bar()
    yield from wire_bars()
    yield from sum_bars()
    yield from overlap_bars()
    yield from encode_bars()


def cheat_bars() -> Iterator[tuple[str, str, bool]]:
    """Judge each cheat that is compressed on problems drawn anew; each is to be wrong every time."""
    for family in COMPRESSED:
        missed = [f"{found.check}: {found.found}" for found in trial((family,), DRAWS, lambda: None) if not found.holds]
        text = "; ".join(missed) or f"all {len(CHEATS)} are wrong in each of {DRAWS} draws"
        yield f"aggregate: planted cheats of {family.numerics} are wrong", text, not missed


def honest_bar() -> tuple[str, str, bool]:
    """Judge right results of drawn problems."""
    seen: Counter[str] = Counter()
    found = list(alarms(discover(), PROBLEMS, SEED, seen, "aggregate"))
    text = "; ".join(found) or f"{seen.total()} right results, no false alarm"
    return f"aggregate: honest kernels are right on {PROBLEMS} drawn problems", text, not found


def wire_bars() -> Iterator[tuple[str, str, bool]]:
    """Compare what formats make of a large gradient with its bytes in FP32."""
    for name, promised in WIRE.items():
        found = f"{4 * ELEMENTS / FORMATS[name].nbytes(ELEMENTS):.3g}"
        yield f"aggregate: {name} is {promised} times smaller on the wire", found, found == promised


def sum_bars() -> Iterator[tuple[str, str, bool]]:
    """Compare sums on the host with the memory ceiling of as many threads that their own run measured.

    Where the memory's bandwidth jumps between two runs of a minute, one run may lay a sum under the ceiling of another
    moment; so the median over several short runs decides, each of which takes its ceiling beside its row.
    """
    wanted = ("aggregate/cpu.host_serial", "aggregate/cpu.host_parallel")
    found: dict[str, list[Any]] = defaultdict(list)
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            for r, _ in _measured(Path(folder), SUM, "--kernels", "aggregate/cpu.host_*", "--max-time", "1"):
                found[r.kernel].append(r)
    for kernel in wanted:
        rows = found[kernel]
        promise = f"{SUM}: {fmt.short(kernel)} at {LEAST_OF_CEILING:.0%} of what memory allows its threads"
        without = [r for r in rows if r.roofline_pct is None]
        if len(rows) < RUNS or without:
            reasons = "; ".join(f"{r.status}: {r.reason or 'no ceiling'}" for r in without)
            yield promise, reasons or f"{len(rows)} of {RUNS} runs have a row", False
        else:
            share = median_interval([r.roofline_pct for r in rows])
            ceilings = sorted(r.ceiling_gbyte_per_s for r in rows)
            text = (
                f"{share.median:.0f} % [{share.low:.0f}, {share.high:.0f}] over {RUNS} runs, whose ceilings on "
                f"{fmt.count(rows[0].threads, 'thread')} are {ceilings[0]:.3g} to {ceilings[-1]:.3g} GB/s"
            )
            yield promise, text, share.median >= 100 * LEAST_OF_CEILING


def overlap_bars() -> Iterator[tuple[str, str, bool]]:
    """Compare the overlap of work and staging with what the link's ceiling and that of the work allow."""
    problems = [f"transfer/n{ELEMENTS}/f32/h2h/work{work}" for work in WORKS]
    found: dict[str, list[Overlap]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        results = _measured(Path(folder), *problems, "--max-time", "4")
        with closing(Store(Path(folder, "r.db"), create=False)) as store:
            for each in overlaps(store, results):
                found[each.row.problem].append(each)
    for problem in problems:
        promise = f"{problem}: overlap at {LEAST_OF_OVERLAP:.0%} of what the ceilings allow"
        shares = [(each.share, allowed(each)) for each in found[problem]]
        if not shares:
            missing = (f"{r.kernel} {r.status}: {r.reason}" for r, _ in results if r.problem == problem and r.reason)
            yield promise, "; ".join(missing) or "too few rounds", False
        for share, most in shares:
            text = f"{share.median:.2f} [{share.low:.2f}, {share.high:.2f}] of {most:.2f}"
            yield promise, text, share.median >= LEAST_OF_OVERLAP * most


def allowed(found: Overlap) -> float:
    """Return the overlap if both took no longer than the longer of them, and no less than the link's ceiling allows."""
    both_s, work_s = (r.time_s_median or 0.0 for r in (found.serial, found.arrived))
    link_s = 1e-9 * 4 * ELEMENTS / (found.row.ceiling_gbyte_per_s or float("inf"))
    copy_s = both_s - work_s
    return (both_s - max(copy_s, work_s, link_s)) / min(copy_s, work_s)


def _measured(folder: Path, *words: str) -> Sequence[Any]:
    """Return the rows of a run on all CPUs, with their problems' dimensions."""
    command = [*COMMAND, "run", *words, "--device", "cpu", "--db", "r.db"]
    subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL)
    with closing(Store(folder / "r.db", create=False)) as store:
        return list(store.results(store.run_ids()[-1]))


if __name__ == "__main__":
    main(aggregate_bars)
