"""Prove the emulated tests: make one mistake at a time in every .cu and .cuh, and print those that no test detects.

    python tools/mutants.py [--short | --table] [PART OF A PATH ...]

Removes each barrier, wait, arrival, fence and boundary guard, shifts each bound by one, puts another size in place of
each leading dimension, and runs that kernel's sweep; for a header, those of all kernels that include it until one
complains. Computes each offset of 64 bits in 32, and asks clang-tidy and runs whose rows lie far apart. Survivors are
printed; one that docs/emulator.md does not explain makes the exit status 1.

--short runs only the cases that the short run of the tests keeps, and leaves the offsets out. --table chooses these
cases for the files that have changed since they were last chosen and writes tests/emulator/short_cases.json after each
file: it can be interrupted.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from emulator import short  # noqa: E402
from emulator.corners import corners  # noqa: E402
from emulator.cover import cover  # noqa: E402
from emulator.mutation import mutants  # noqa: E402
from emulator.narrowing import narrowed_fates  # noqa: E402
from emulator.offsets import clang_tidy  # noqa: E402
from emulator.proof import DOCS, Fate, are_explained, fates, headers_by_name, kernels_by_source, mention, plan  # noqa: E402
from kernelmark.bench.emulator.build import CUDA, cache_folder, missing_tool  # noqa: E402
from kernelmark.bench.plan.discovery import discover  # noqa: E402


def main(words: list[str]) -> int:
    """The script: exit status 0 where every survivor is explained, 1 where not, 2 where nothing can be compiled."""
    if reason := missing_tool():
        print(reason, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser()
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--short", action="store_true")
    modes.add_argument("--table", action="store_true")
    parser.add_argument("parts", nargs="*")
    given = parser.parse_args(words)
    if clang_tidy() is None and not (given.short or given.table):
        print("clang-tidy is not on PATH; install it with: pip install -e '.[test]'", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as cache:  # thousands of programs that are used once
        os.environ["XDG_CACHE_HOME"] = cache
        return choose(_files(given.parts)) if given.table else prove(_files(given.parts), given.short)


def prove(files: list[str], short_run: bool) -> int:
    """Print the survivors; 1 where one of them is not explained."""
    began = time.monotonic()
    found = [fate for file in files for fate in _run(file, short_run)]
    survivors = [fate for fate in found if fate.complaint is None]
    unexplained = _unexplained(survivors)
    for fate in unexplained:
        print(f"not explained in {DOCS.relative_to(ROOT)}: {fate.file} {fate.mutant}")
    stillborn = sum(not fate.compiles for fate in found)
    print(
        f"{len(found)} mutants in {time.monotonic() - began:.0f} s: {len(found) - len(survivors) - stillborn} caught, "
        f"{stillborn} do not compile, {len(survivors)} survived, {len(unexplained)} of them unexplained"
    )
    return 1 if unexplained else 0


def _files(parts: list[str]) -> list[str]:
    """The sources of emulated kernels, then their headers, whose path holds one of the parts."""
    files = [*sorted(kernels_by_source(discover())), *sorted(headers_by_name(discover()))]
    return [file for file in files if not parts or any(part in file for part in parts)]


def _run(file: str, short_run: bool) -> list[Fate]:
    plans = plan(discover(), file)
    if short_run:
        kept = short.kept(short.load())
        plans = [left for group in plans if (left := [case for case in group if short.name(case) in kept])]
    plans += [[case] for case in corners(file)]
    found, workers = [], os.cpu_count() or 1
    offsets = [] if short_run else narrowed_fates(file, workers)
    for fate in chain(fates(file, list(mutants((CUDA / file).read_text())), plans, workers), offsets):
        found.append(fate)
        if fate.complaint is None:
            print(f"SURVIVED {file} {fate.mutant}", flush=True)
    caught = sum(fate.complaint is not None for fate in found)
    print(f"{file}: {caught} of {len(found)} mutants caught", flush=True)
    return found


def choose(files: list[str]) -> int:
    """Write the rows of the table that are not as of now, the sources' first: headers then need few cases more."""
    rows = {file: row for file, row in short.load().items() if file in _files([])}
    left = [file for file in files if not short.is_fresh(rows, file)]
    print(f"{len(files) - len(left)} of {len(files)} files are up to date", flush=True)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _own_cache) as pool:
        for ending in (".cu", ".cuh"):
            known = short.needed(rows)
            work = {pool.submit(_choose, file, known): file for file in left if file.endswith(ending)}
            for done in as_completed(work):
                file, (rows[work[done]], seconds) = work[done], done.result()
                short.save(rows)
                print(f"{rows[file].mutants} mutants of {file} need {len(rows[file].names())} cases, {seconds:.0f} s")
    short.save(rows)
    return 0


def _choose(file: str, known: set[str]) -> tuple[short.Row, float]:
    """The row of a file, and the processor time that it took."""
    began, every = sum(os.times()[:4]), list(mutants((CUDA / file).read_text()))
    explained = are_explained(file, every)  # no case finds these, and to try them all takes longest
    left = [mutant for mutant in every if mutant not in explained]
    found, survivors = cover(file, left, short.ordered(chain.from_iterable(plan(discover(), file)), known))
    for path in cache_folder().iterdir():
        if path.is_file():
            path.unlink()
        elif path.name.startswith("sources-"):
            shutil.rmtree(path)
    missed = sorted([*explained, *survivors], key=lambda mutant: mutant.line)
    return short.row(file, len(every), found, map(str, missed)), sum(os.times()[:4]) - began


def _own_cache() -> None:
    """A folder for this process alone, so that it can be emptied after each file."""
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(dir=os.environ["XDG_CACHE_HOME"])


def _unexplained(survivors: list[Fate]) -> list[Fate]:
    """Survivors that the page does not name; a mention explains one."""
    page = DOCS.read_text() if DOCS.is_file() else ""
    seen: Counter[str] = Counter()
    left = []
    for fate in survivors:
        name = mention(fate.file, fate.mutant)
        seen[name] += 1
        if seen[name] > page.count(name):
            left.append(fate)
    return left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
