"""`make fuzz`: call the command with thousands of random inputs, and print a line for each fault."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from fuzz.campaign import BATCH, Fault, Report, Setting, batch, smallest, tried
from fuzz.inputs import digest, make_samples, read, shown, write
from fuzz.perform import LIMIT_S, ROOT
from fuzz.strategy import KINDS
from kernelmark.bench.cli.commands import cli

FAULTY = ROOT / "out" / "fuzz"
#: The number of faults of one kind that are printed.
MOST_ALIKE = 3
#: The most batches of a seed: the distance between the numbers from which two seeds draw their batches.
MOST_BATCHES = 100_000


def line(fault: Fault) -> str:
    name = write(FAULTY / f"{digest(fault.given)}.json", fault.words, fault.given).relative_to(ROOT)
    return f'{fault.words[:200]} | {shown(fault.given)} | make fuzz FUZZ_ARGS="--replay {name}"'


def main() -> int:
    options = _arguments()
    kinds, total, begun = Counter[tuple[str, str]](), Report([], Counter(), Counter()), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelmark-fuzz-") as name:
        (samples := Path(name, "samples")).mkdir()
        setting = Setting(make_samples(samples), Path(name), options.limit, tuple(options.only))
        with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
            try:
                for done in as_completed(list(submitted(pool, setting, options))):
                    report = done.result()
                    total.statuses.update(report.statuses)
                    total.commands.update(report.commands)
                    for fault in report.faults:
                        kinds[fault.kind] += 1
                        if kinds[fault.kind] <= MOST_ALIKE:
                            print(line(fault), flush=True)
                        if kinds[fault.kind] == 1 and options.smallest:
                            print(f"smallest: {line(pool.submit(smallest, setting, fault).result())}", flush=True)
            except KeyboardInterrupt:
                print("interrupted; finishing the batches that have begun", flush=True)
            finally:
                pool.shutdown(cancel_futures=True)
    statuses = ", ".join(f"{status}: {number}" for status, number in sorted(total.statuses.items()))
    commands = ", ".join(f"{name} {number}" for name, number in total.commands.most_common() if name in cli.commands)
    summary = f"{kinds.total()} faults of {len(kinds)} kinds" if kinds else "no fault"
    took = f"{total.statuses.total()} commands in {time.monotonic() - begun:.0f} s"
    print(f"{took} ({commands}); exit statuses {statuses}; {summary}")
    return 1 if kinds else 0


def submitted(pool: Executor, setting: Setting, options: argparse.Namespace) -> Iterator[Future[Report]]:
    if options.replay:
        yield from (pool.submit(tried, setting, read(path)) for path in options.replay)
        return
    print(f"seed {options.seed}", flush=True)
    for number, start in enumerate(range(0, options.inputs, BATCH), options.start // BATCH):
        yield pool.submit(batch, setting, options.seed * MOST_BATCHES + number, min(BATCH, options.inputs - start))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--start", type=int, default=0, help=f"skip this many inputs of the seed, N x {BATCH}")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="CPU seconds that a command may use")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=[], help="draw only these kinds of input")
    parser.add_argument(
        "--replay", type=Path, nargs="+", help="files of out/fuzz or the corpus, instead of drawn inputs"
    )
    parser.add_argument("--smallest", action="store_true", help="shrink the first input of each kind of fault")
    options = parser.parse_args()
    if options.start % BATCH:
        parser.error(f"argument --start: {options.start} is no multiple of {BATCH}")
    return options


if __name__ == "__main__":
    sys.exit(main())
