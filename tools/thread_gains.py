"""Prints how CPU kernels scale from one thread to the most, kernel by kernel, as Markdown.

`python tools/thread_gains.py --run RUN [--db FILE]` reads a run that was made with `--threads 1,2` or the like. A gain
is the time on one thread over that on the most. What the ceilings allow is the same ratio of the times that they leave
to what a row executes and moves; shares of it are of problems with at least 50 MFLOP, since smaller ones are bound by
neither. Thread counts are not measured in turn, so a gain owes something to what else the machine did.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import geometric_mean

from tabulate import tabulate

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.figures.threads_sizes import Gain, gains
from kernelmark.bench.report.run_data import RunData, work

LEAST_FLOP, SLOWER, SHARE = 50e6, 1.0, 0.9
HEADERS = (
    "kernel",
    "problems",
    "gain",
    "least",
    "its problem",
    "below 1",
    "of what ceilings allow",
    "least",
    "its problem",
    "below 0.9",
)


def by_kernel(found: Iterable[Gain]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kernel: its gains, then the shares of what ceilings allow that it has on large problems."""
    kernels: dict[str, list[Gain]] = defaultdict(list)
    for gain in found:
        kernels[gain.row.kernel].append(gain)
    for kernel, own in sorted(kernels.items()):
        every = {gain.row.problem: gain.ratio.median for gain in own}
        large = (gain for gain in own if work(gain.row) >= LEAST_FLOP and gain.row.gflop_per_s)
        shares = {gain.row.problem: gain.ratio.median / gain.allowed for gain in large if gain.allowed}
        yield f"`{kernel}`", str(len(every)), *_cells(every, SLOWER), *_cells(shares, SHARE)


def _cells(found: dict[str, float], bar: float) -> tuple[str, str, str, str]:
    if not found:
        return "", "", "", ""
    least = min(found, key=found.__getitem__)
    below = sum(value < bar for value in found.values())
    return fmt.digits(geometric_mean(found.values())), fmt.digits(found[least]), f"`{least}`", str(below)


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return 2, after one line, for what cannot be printed."""
    parser = argparse.ArgumentParser(prog="thread_gains", description="Print how CPU kernels scale with threads.")
    parser.add_argument("--db", type=Path, help="store that holds the run; kernelmark's own if left out")
    parser.add_argument("--run", required=True, help="id or name of a run with several --threads")
    asked = parser.parse_args(words)
    try:
        with closing(Store(asked.db or default_store(), create=False)) as store:
            rows = list(by_kernel(gains(RunData(store, str(store.find_run(asked.run)["run_id"])))))
        if not rows:
            raise UsageError(f"run {asked.run}: has no kernel on one thread and on more; `--threads 1,2` measures both")
    except UsageError as error:
        print(f"thread_gains: {error}", file=sys.stderr)
        return 2
    print(tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
