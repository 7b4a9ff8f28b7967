"""Prove the emulated tests: make one mistake at a time in every .cu and .cuh, and print those that no test detects.

    make mutants MUTANTS_ARGS="[--short | --trips] [PART OF A PATH ...]"

The command removes each barrier, wait, arrival, fence and boundary guard, shifts each bound by one, and replaces each
leading dimension by another size. For each mistake, it runs the sweeps of all kernels that include the file, until a
case complains. It prints the survivors; the exit status is 1 if survivors.md does not explain one of them.

--short runs only the cases of the short test run. --trips only prints, for each loop, the most iterations in any of
these cases, the number that is required, and the case with the most.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from emulator.mutation import mutants
from emulator.proof import SURVIVORS, Fate, corners, fate, headers_by_name, kernels_by_source, mention, plan, short_run
from emulator.trips import trips
from kernelmark.bench.emulator.build import CUDA, missing_tool


def main() -> int:
    """Return 0 if every survivor is explained, 1 if one is not, and 2 if nothing can be compiled."""
    if reason := missing_tool():
        print(reason, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--trips", action="store_true")
    parser.add_argument("parts", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:  # for thousands of programs, each used once
        os.environ["XDG_CACHE_HOME"] = cache
        files = [*sorted(kernels_by_source()), *sorted(headers_by_name())]
        chosen = [file for file in files if not given.parts or any(part in file for part in given.parts)]
        return count_trips(chosen) if given.trips else prove(chosen, given.short)


def count_trips(files: list[str]) -> int:
    """Print the iterations of each loop in the kernels of these sources; return 1 if a loop has too few."""
    enough = True
    for kernel in (kernel.id for file in files for kernel in kernels_by_source().get(file, ())):
        print(kernel)
        for loop, most in sorted(trips(short_run(kernel)).items()):
            line = f"  {most.trips:4} of {most.least}  {loop.file}:{loop.line}: {loop.condition}  {most.case.id}"
            print(line, flush=True)
            enough &= most.trips >= most.least
    return 0 if enough else 1


def prove(files: list[str], is_short: bool) -> int:
    """Print the survivors; return 1 if a survivor is not explained."""
    began = time.monotonic()
    fates = [outcome for file in files for outcome in _run(file, is_short)]
    survivors = [outcome for outcome in fates if outcome.complaint is None]
    unexplained = _unexplained(survivors)
    for survivor in unexplained:
        print(f"not explained in {SURVIVORS.relative_to(CUDA.parent)}: {survivor.file} {survivor.mutant}")
    stillborn = sum(not outcome.compiles for outcome in fates)
    print(
        f"{len(fates)} mutants in {time.monotonic() - began:.0f} s: {len(fates) - len(survivors) - stillborn} caught, "
        f"{stillborn} do not compile, {len(survivors)} survived, {len(unexplained)} of them unexplained"
    )
    return 1 if unexplained else 0


def _run(file: str, is_short: bool) -> list[Fate]:
    plans = [*plan(file, is_short), *([case] for case in corners(file))]
    fates = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for outcome in pool.map(lambda mutant: fate(file, mutant, plans), mutants((CUDA / file).read_text())):
            fates.append(outcome)
            if outcome.complaint is None:
                print(f"SURVIVED {file} {outcome.mutant}", flush=True)
    caught = sum(outcome.complaint is not None for outcome in fates)
    print(f"{file}: {caught} of {len(fates)} mutants caught", flush=True)
    return fates


def _unexplained(survivors: list[Fate]) -> list[Fate]:
    """Return the survivors that survivors.md does not name; each mention explains one survivor."""
    page, seen, left = SURVIVORS.read_text(), Counter[str](), []
    for survivor in survivors:
        name = mention(survivor.file, survivor.mutant)
        seen[name] += 1
        if seen[name] > page.count(name):
            left.append(survivor)
    return left


if __name__ == "__main__":
    sys.exit(main())
