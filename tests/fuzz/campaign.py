"""The campaign: batches of drawn inputs, each batch from a seed of its own, and what is wrong with how they end."""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky

from fuzz.execute import LIMIT_S, Server
from fuzz.inputs import Input, digest
from fuzz.judge import faults
from fuzz.strategy import inputs

#: Inputs of a batch: no process waits long for the last one, and Hypothesis has begun with small ones seldom enough.
BATCH = 50
_numbers = count()


class Fault(NamedTuple):
    """What is wrong with how an input ended, in words that begin with a kind, and the seed of its batch."""

    given: Input
    words: str
    seed: int

    @property
    def kind(self) -> tuple[str, str]:
        """Faults of one kind have one cause, as far as words can tell."""
        first = self.given.steps[0].words
        return (first[0] if first else "", "".join("0" if c.isdigit() else c for c in self.words)[:60])


class Report(NamedTuple):
    """What a batch came to: its faults, and how often each exit status and each command occurred."""

    faults: list[Fault]
    statuses: Counter[int]
    commands: Counter[str]


class Lane:
    """What performs inputs one after the other.

    place: a folder to work in; samples: files to begin with; limit_s: how long a command may take; quick: to measure
    nothing; only: the one kind of input to draw.
    """

    def __init__(
        self, samples: Path, place: Path, limit_s: float = LIMIT_S, quick: bool = False, only: str = ""
    ) -> None:
        set_hypothesis_home_dir(place / "hypothesis")
        self._samples, self._place, self._server = samples, place, Server(limit_s)
        self._inputs = inputs(samples, quick, only)

    def close(self) -> None:
        """End its process."""
        self._server.__exit__()

    def tried(self, one: Input, seed: int, report: Report) -> list[Fault]:
        """Perform an input, count it in the report, and return what is wrong with it."""
        found = self._server.perform(one, self._samples, self._place / f"{os.getpid()}-{next(_numbers)}")
        report.statuses.update(outcome.status for outcome in found.outcomes)
        report.commands.update(step.words[0] for step in one.steps if step.words)
        return [Fault(one, words, seed) for words in faults(one, found)]

    def batch(self, seed: int, most: int) -> Report:
        """Draw this many different inputs, and perform each."""
        report, seen = Report([], Counter(), Counter()), set[str]()

        def perform(one: Input) -> None:
            hypothesis.assume(digest(one) not in seen)  # Hypothesis repeats a fifth of them
            seen.add(digest(one))
            report.faults.extend(self.tried(one, seed, report))

        self._draw(perform, seed, most, ())
        return report

    def smallest(self, fault: Fault, most: int = BATCH) -> Fault:
        """Return the smallest input that Hypothesis finds with a fault of the same kind."""
        found = [fault]

        def fails(one: Input) -> None:
            same = [
                new for new in self.tried(one, fault.seed, Report([], Counter(), Counter())) if new.kind == fault.kind
            ]
            if same:
                found.append(same[0])
                raise AssertionError

        with suppress(AssertionError, Flaky):
            self._draw(fails, fault.seed, most, (Phase.shrink,))
        return found[-1]

    def _draw(self, use: Callable[[Input], None], seed: int, most: int, more: tuple[Phase, ...]) -> None:
        rules = settings(
            max_examples=most, phases=(Phase.generate, *more), database=None, deadline=None, print_blob=False,
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
        )  # fmt: skip

        @hypothesis.seed(seed)
        @rules
        @given(self._inputs)
        def each(one: Input) -> None:
            use(one)

        each()
