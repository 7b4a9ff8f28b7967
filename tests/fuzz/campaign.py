"""The campaign: batches of drawn inputs, each batch from its own seed, and complaints about how they end.

A process of the pool calls these functions.
"""

import functools
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

from fuzz.inputs import Input, digest
from fuzz.perform import LIMIT_S, faults, perform
from fuzz.strategy import inputs

#: Inputs of a batch: no process waits long for the last one, and Hypothesis has begun with small ones seldom enough.
BATCH = 50
_numbers = count()
_inputs = functools.cache(inputs)


class Setting(NamedTuple):
    """Files to begin with, a folder to work in, the seconds of a step, and the kinds of input to draw; () for all."""

    samples: Path
    place: Path
    limit_s: float = LIMIT_S
    kinds: tuple[str, ...] = ()


class Fault(NamedTuple):
    """What is wrong with how an input ended, in words that begin with a kind, and the seed of its batch."""

    given: Input
    words: str
    seed: int = 0

    @property
    def kind(self) -> tuple[str, str]:
        """Faults of one kind have one cause, as far as words can tell."""
        first = self.given.steps[0].words
        return (first[0] if first else "", "".join("0" if c.isdigit() else c for c in self.words)[:60])


class Report(NamedTuple):
    """What inputs came to: their faults, and how often each exit status and each command occurred."""

    faults: list[Fault]
    statuses: Counter[int]
    commands: Counter[str]


def tried(setting: Setting, input_: Input, seed: int = 0) -> Report:
    performed = perform(input_, setting.samples, setting.place / f"{os.getpid()}-{next(_numbers)}", setting.limit_s)
    commands = Counter(step.words[0] for step in input_.steps if step.words)
    statuses = Counter(outcome.status for outcome in performed.outcomes)
    return Report([Fault(input_, words, seed) for words in faults(input_, performed)], statuses, commands)


def batch(setting: Setting, seed: int, most: int) -> Report:
    report, seen = Report([], Counter(), Counter()), set[str]()

    def use(input_: Input) -> None:
        hypothesis.assume(digest(input_) not in seen)  # Hypothesis repeats a fifth of them
        seen.add(digest(input_))
        for all_of_them, its in zip(report[1:], (new := tried(setting, input_, seed))[1:], strict=True):
            all_of_them.update(its)
        report.faults.extend(new.faults)

    _draw(use, setting, seed, most)
    return report


def smallest(setting: Setting, fault: Fault) -> Fault:
    alike = [fault]

    def use(input_: Input) -> None:
        same = [new for new in tried(setting, input_, fault.seed).faults if new.kind == fault.kind]
        alike.extend(same)
        assert not same

    with suppress(AssertionError, Flaky):
        _draw(use, setting, fault.seed, BATCH, Phase.shrink)
    return alike[-1]


def _draw(use: Callable[[Input], None], setting: Setting, seed: int, most: int, *more: Phase) -> None:
    set_hypothesis_home_dir(setting.place / "hypothesis")
    rules = settings(
        max_examples=most, phases=(Phase.generate, *more), database=None, deadline=None, print_blob=False,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    hypothesis.seed(seed)(rules(given(_inputs(setting.samples, setting.kinds))(use)))()
