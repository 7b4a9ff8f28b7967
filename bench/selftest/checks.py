"""The checks of the self-test: their names, how many jobs each takes, and which belong to the quick look."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench.plan.errors import UsageError
from bench.selftest import adversaries, clocks, cold, durations, ratio, repeats
from bench.selftest.finding import Finding, Tick


class Group(NamedTuple):
    """Checks that share their jobs: by name, how many jobs they take, what finds their figures, how long it takes."""

    names: tuple[str, ...]
    jobs: Callable[[], int]
    check: Callable[[Tick], Iterator[Finding]]
    quick: bool


GROUPS = (
    Group(("durations",), durations.jobs, durations.check, quick=True),
    Group(("clocks",), clocks.jobs, clocks.check, quick=True),
    Group(("adversaries",), lambda: len(adversaries.expected()), adversaries.check, quick=True),
    Group(("ratio",), lambda: ratio.PROCESSES, ratio.check, quick=True),
    Group(("cold",), cold.jobs, cold.check, quick=False),
    Group(("coverage", "spread", "aa", "planted"), repeats.count, repeats.check, quick=False),
)
NAMES = tuple(name for group in GROUPS for name in group.names)


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


def jobs(names: Sequence[str]) -> int:
    """Return how many jobs these checks take."""
    return sum(group.jobs() for group in _groups(names))


def run(names: Sequence[str], tick: Tick) -> Iterator[Finding]:
    """The findings of these checks, as they come; `tick` is called after each job."""
    for group in _groups(names):
        for finding in group.check(tick):
            # What stands in the place of figures that could not be had belongs to all that share the jobs.
            if finding.name in names or finding.name not in NAMES:
                yield finding


def _groups(names: Sequence[str]) -> list[Group]:
    return [group for group in GROUPS if set(group.names) & set(names)]
