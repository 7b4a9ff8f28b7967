"""`make fuzz`: call the command with thousands of drawn inputs; print what is wrong with how it ended, a line each."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from fuzz import processes
from fuzz.campaign import BATCH, Fault, Report
from fuzz.execute import LIMIT_S, ROOT
from fuzz.files import make_samples
from fuzz.inputs import Entry, digest, shown, write
from fuzz.strategy import KINDS
from kernelmark.bench.cli.commands import cli

FOUND = ROOT / "out" / "fuzz"
#: Faults of one kind that are printed.
MOST_ALIKE = 3
#: Each batch has a seed of its own, and no campaign has more.
MOST_BATCHES = 100_000


def line(fault: Fault) -> str:
    """Write the input of a fault to a file, and return the line that describes both."""
    entry = Entry(note=fault.words, input=fault.given)
    name = write(FOUND / f"{digest(fault.given)}.json", entry).relative_to(ROOT)
    return f'{fault.words[:200]} | {shown(fault.given)} | make fuzz FUZZ_ARGS="--replay {name}"'


def printed(faults: list[Fault], kinds: Counter[tuple[str, str]]) -> Iterator[Fault]:
    """Print the faults, the first few of each kind, and yield the first of each."""
    for fault in faults:
        kinds[fault.kind] += 1
        if kinds[fault.kind] <= MOST_ALIKE:
            print(line(fault), flush=True)
        if kinds[fault.kind] == 1:
            yield fault


def main() -> int:
    """Perform what is asked for; return 1 where something was wrong."""
    asked = _arguments()
    kinds, total, begun = Counter[tuple[str, str]](), Report([], Counter(), Counter()), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelmark-fuzz-") as name:
        samples = Path(name, "samples")
        samples.mkdir()
        made = (make_samples(samples), Path(name), asked.limit, asked.only)
        with ProcessPoolExecutor(asked.jobs, get_context("spawn"), processes.begin, made) as pool:
            try:
                for done in as_completed(list(_submitted(pool, asked))):
                    report = done.result()
                    total.statuses.update(report.statuses)
                    total.commands.update(report.commands)
                    firsts = list(printed(report.faults, kinds))
                    for small in pool.map(processes.smallest, firsts) if asked.smallest else ():
                        print(f"smallest: {line(small)}", flush=True)
            except KeyboardInterrupt:
                print("interrupted; what was begun is finished", flush=True)
            finally:
                pool.shutdown(cancel_futures=True)
    print(_summary(total, kinds, time.monotonic() - begun))
    return 1 if kinds else 0


def _submitted(pool: ProcessPoolExecutor, asked: argparse.Namespace) -> Iterator[Future[Report]]:
    if asked.replay:
        yield from (pool.submit(processes.replay, path) for path in asked.replay)
        return
    print(f"seed {asked.seed}", flush=True)
    for number, start in enumerate(range(0, asked.inputs, BATCH), asked.start // BATCH):
        yield pool.submit(processes.batch, asked.seed * MOST_BATCHES + number, min(BATCH, asked.inputs - start))


def _summary(total: Report, kinds: Counter[tuple[str, str]], seconds: float) -> str:
    statuses = ", ".join(f"{status}: {number}" for status, number in sorted(total.statuses.items()))
    commands = ", ".join(f"{name} {number}" for name, number in total.commands.most_common() if name in cli.commands)
    found = f"{kinds.total()} faults of {len(kinds)} kinds" if kinds else "no fault"
    return f"{total.statuses.total()} commands in {seconds:.0f} s ({commands}); exit statuses {statuses}; {found}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--start", type=int, default=0, help=f"go on after this many inputs of the seed, N x {BATCH}")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a processor for a command")
    parser.add_argument("--only", choices=KINDS, default="", help="draw this kind of input alone")
    parser.add_argument("--replay", type=Path, nargs="+", help="files of out/fuzz or of the corpus, and nothing drawn")
    parser.add_argument("--smallest", action="store_true", help="shrink the first input of each kind of fault")
    asked = parser.parse_args()
    if asked.start % BATCH:
        parser.error(f"argument --start: {asked.start} is no multiple of {BATCH}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
