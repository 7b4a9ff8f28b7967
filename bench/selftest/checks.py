"""The checks of the self-test: their names, how many jobs each takes, and which of them `--quick` runs."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.selftest import adversaries, clocks, durations, known_ratios, repeats
from kernelmark.bench.selftest.finding import Finding, Tick
from kernelmark.bench.selftest.wrong import FAMILIES
from kernelmark.bench.selftest.wrong.library import count, trial


class Group(NamedTuple):
    """Checks that use the same jobs. jobs: returns the number of jobs. check: yields the findings.

    quick: whether `--quick` runs these checks. seeded: whether the user can choose how often operands are drawn.
    """

    names: tuple[str, ...]
    jobs: Callable[..., int]
    check: Callable[..., Iterator[Finding]]
    quick: bool
    seeded: bool = False


GROUPS = (
    Group(("durations",), durations.jobs, durations.check, quick=True),
    Group(("clocks",), clocks.jobs, clocks.check, quick=True),
    *(
        Group((name,), partial(adversaries.jobs, name), partial(adversaries.run, name), quick, seeded=True)
        for name, quick in (("adversaries", True), ("habits", False))
    ),
    Group(("wrong",), partial(count, FAMILIES), partial(trial, FAMILIES), quick=False, seeded=True),
    Group(("ratio",), lambda: known_ratios.PROCESSES, known_ratios.check_layouts, quick=True),
    Group(("cold",), known_ratios.cold_jobs, known_ratios.check_cold, quick=False),
    Group(("coverage", "spread", "aa", "planted"), repeats.jobs, repeats.check, quick=False),
)
NAMES = tuple(name for group in GROUPS for name in group.names)
#: The checks that `--adversaries` selects.
ADVERSARIES = tuple(name for group in GROUPS if group.seeded for name in group.names)


def chosen(only: str | None, quick: bool) -> tuple[str, ...]:
    """Return the names of the selected checks. Raises UsageError if a name is unknown or both options are given."""
    if only is None:
        return tuple(name for group in GROUPS if group.quick or not quick for name in group.names)
    if quick:
        raise UsageError(f"--quick --only {only}: each chooses the checks; omit one of them")
    wanted = [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in NAMES:
            raise UsageError(f"--only {only}: {name!r} is not a check; expected some of {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in wanted)


def jobs(names: Sequence[str], seeds: int | None = None) -> int:
    """Return the number of jobs of these checks."""
    return sum(group.jobs(*draws) for group, draws in _groups(names, seeds))


def run(names: Sequence[str], tick: Tick, seeds: int | None = None) -> Iterator[Finding]:
    """Yield the findings of these checks; `tick` is called after each job.

    seeds: the number of draws of the operands, for checks where the user can choose it; None: the default.
    """
    for group, draws in _groups(names, seeds):
        for finding in group.check(tick, *draws):
            # A finding that replaces figures has a name of its own, since it concerns all checks of the group.
            if finding.name in names or finding.name not in NAMES:
                yield finding


def _groups(names: Sequence[str], seeds: int | None) -> Iterator[tuple[Group, tuple[int, ...]]]:
    for group in GROUPS:
        if set(group.names) & set(names):
            yield group, (seeds,) if seeds is not None and group.seeded else ()
