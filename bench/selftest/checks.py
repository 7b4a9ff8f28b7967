"""The checks of the self-test: their names, how many jobs each takes, and which belong to the quick look."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.selftest import adversaries, clocks, cold, durations, ratio, repeats
from kernelmark.bench.selftest.finding import Finding, Tick
from kernelmark.bench.selftest.wrong import check as wrong


class Group(NamedTuple):
    """Checks that share their jobs: by name, how many jobs they take, what finds their figures, how long it takes.

    seeded: on how many draws may be chosen.
    """

    names: tuple[str, ...]
    jobs: Callable[..., int]
    check: Callable[..., Iterator[Finding]]
    quick: bool
    seeded: bool = False


GROUPS = (
    Group(("durations",), durations.jobs, durations.check, quick=True),
    Group(("clocks",), clocks.jobs, clocks.check, quick=True),
    Group(("adversaries",), adversaries.jobs, adversaries.check, quick=True, seeded=True),
    Group(("wrong",), wrong.jobs, wrong.check, quick=False, seeded=True),
    Group(("ratio",), lambda: ratio.PROCESSES, ratio.check, quick=True),
    Group(("cold",), cold.jobs, cold.check, quick=False),
    Group(("coverage", "spread", "aa", "planted"), repeats.count, repeats.check, quick=False),
)
NAMES = tuple(name for group in GROUPS for name in group.names)


#: What `--adversaries` stands for.
ADVERSARIES = tuple(name for group in GROUPS if group.seeded for name in group.names)


def chosen(only: str | None, quick: bool) -> tuple[str, ...]:
    """The names of the checks that are asked for. Raises UsageError for one that is none, and for both options."""
    if only is None:
        return tuple(name for group in GROUPS if group.quick or not quick for name in group.names)
    if quick:
        raise UsageError(f"--quick --only {only}: each chooses the checks; take one of the two")
    wanted = [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in NAMES:
            raise UsageError(f"--only {only}: {name!r} is not a check; expected some of {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in wanted)


def jobs(names: Sequence[str], seeds: int | None = None) -> int:
    """Return how many jobs these checks take."""
    return sum(group.jobs(*_seeds(group, seeds)) for group in _groups(names))


def run(names: Sequence[str], tick: Tick, seeds: int | None = None) -> Iterator[Finding]:
    """The findings of these checks, as they come; `tick` is called after each job.

    seeds: on how many draws adversaries are tried, where another number than theirs is wanted.
    """
    for group in _groups(names):
        for finding in group.check(tick, *_seeds(group, seeds)):
            # What stands in the place of figures that could not be had belongs to all that share the jobs.
            if finding.name in names or finding.name not in NAMES:
                yield finding


def _seeds(group: Group, seeds: int | None) -> tuple[int, ...]:
    return (seeds,) if seeds is not None and group.seeded else ()


def _groups(names: Sequence[str]) -> list[Group]:
    return [group for group in GROUPS if set(group.names) & set(names)]
