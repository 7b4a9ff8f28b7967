"""The corpus: files with bugs that `-DBUG=n` plants, each described in the head of its file; BUG=0 is correct."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emulator.planted import SETUPS
from emulator.planted_parts import Setup
from kernelmark.bench.emulator.build import program
from kernelmark.bench.emulator.report import Diagnostic, unwaived
from kernelmark.bench.emulator.worker import run

#: `// bug 3 (out-of-bounds): the row guard lets row == m through`
BUG = re.compile(r"^// bug (\d+) \(([\w, -]+)\): (.*)$", re.MULTILINE)
CORPUS = Path(__file__).with_name("corpus")
LIMIT_S = 1


@dataclass(frozen=True)
class Planted:
    """A bug: what it is, and the kinds of report of which at least one has to name it."""

    file: str
    number: int
    kinds: tuple[str, ...]
    title: str

    @property
    def id(self) -> str:
        return f"{self.file}.cu/{self.number}-{self.title.replace(' ', '-')}"


def planted() -> Iterator[Planted]:
    """Every bug of the corpus."""
    for name in SETUPS:
        for number, kinds, title in BUG.findall((CORPUS / f"{name}.cu").read_text()):
            yield Planted(name, int(number), tuple(kinds.split(", ")), title)


def findings(name: str, bug: int) -> list[Diagnostic | str]:
    """Reports and wrong results of a file with this bug, under all orders; a wrong result is the word `wrong`."""
    setup = SETUPS[name]()
    source = CORPUS / f"{name}.cu"
    worker = program(source, [setup.launch.entry], defines=[f"BUG={bug}"])
    found: list[Diagnostic | str] = []
    outcomes = run(worker, setup.buffers, [setup.launch], constants=setup.constants, limit_s=LIMIT_S)
    for outcome in outcomes:
        found += unwaived(outcome.reports)
        if not _right(setup, outcome.outputs):
            found.append("wrong")
    return found


def _right(setup: Setup, outputs: dict[str, np.ndarray]) -> bool:
    return all(
        np.allclose(outputs[name].reshape(want.shape), want, rtol=0, atol=setup.error)
        for name, want in setup.want.items()
    )
