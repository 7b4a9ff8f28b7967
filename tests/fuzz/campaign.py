"""The campaign: batches of drawn inputs, each batch from its own seed, and the faults of these inputs.

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

#: Inputs of a batch: so few that no process waits long for the last batch, and so many that the small inputs with
#: which Hypothesis begins are rare.
BATCH = 50
_numbers = count()
_inputs = functools.cache(inputs)


class Setting(NamedTuple):
    """The samples, a folder to work in, the time limit of a step, and the kinds of input to draw; () for all."""

    samples: Path
    place: Path
    limit_s: float = LIMIT_S
    kinds: tuple[str, ...] = ()


class Fault(NamedTuple):
    """A fault of an input, in words that begin with its kind, and the seed of the input's batch."""

    given: Input
    words: str
    seed: int = 0

    @property
    def kind(self) -> tuple[str, str]:
        """Return the command and the beginning of the words: equal for faults that probably have the same cause."""
        first = self.given.steps[0].words
        return (first[0] if first else "", "".join("0" if c.isdigit() else c for c in self.words)[:60])


class Report(NamedTuple):
    """The faults of inputs, and how often each exit status and each command occurred."""

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
        hypothesis.assume(digest(input_) not in seen)  # Hypothesis repeats a fifth of its inputs
        seen.add(digest(input_))
        new = tried(setting, input_, seed)
        report.statuses.update(new.statuses)
        report.commands.update(new.commands)
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
