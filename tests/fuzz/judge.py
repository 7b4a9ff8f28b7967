"""What is wrong with how an input ended: each rule that every command keeps, whatever it is given."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import PurePath

from complaints import complaints
from fuzz.execute import Found, Outcome
from fuzz.inputs import Input, Step
from fuzz.kept import lost
from kernelmark.bench.cli.options import DEFECT

STATUSES = (0, 1, 2, 130)
#: The longest line on standard error.
MOST = 300
#: Commands that write progress to standard error, or under --json all that is no JSON.
TALKS = ("run", "claims", "tune", "--json")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Exception ignored in")
#: What is no `Exception` ends the worker in which a plug-in raises it; what its process prints is shown.
_BEYOND = re.compile(r"^(KeyboardInterrupt|GeneratorExit|\S+\.Base)\b", re.MULTILINE)
#: A shorter word names no files but the one.
SHORTEST_STEM = 3


def faults(given: Input, found: Found) -> list[str]:
    """Return what is wrong, a few words for each."""
    pairs = list(zip(given.steps, found.outcomes, strict=True))
    of_steps = [fault for step, outcome in pairs for fault in _step(given, step, outcome)]
    if given.wild or any(step.kill or outcome.hung for step, outcome in pairs):
        return [*of_steps, *lost(given, found)]
    words = [word.rpartition("=")[2] for step in given.steps for word in step.words]
    named = {os.path.normpath(word) for word in (*words, *given.asked)}
    of_steps += [f"file left or changed: {name}" for name in found.changed if not _is_asked_for(name, named)]
    return of_steps + [f"temporary file left: {name}" for name in found.temporary if "-defect-" not in name]


def _is_asked_for(name: str, named: set[str]) -> bool:
    """Return whether a file is named, lies in a folder that is or is one to it, or begins as a file that is named."""
    if "." in named or "__pycache__" in name or any(place == name or place.startswith(f"{name}/") for place in named):
        return True
    stems = (str(PurePath(place).with_suffix("")) for place in named if PurePath(place).name)
    return any(len(stem) >= SHORTEST_STEM and name.startswith(stem) for stem in stems)


def _step(given: Input, step: Step, outcome: Outcome) -> Iterator[str]:
    if outcome.hung:
        yield f"hang: goes on{' after an interrupt' if outcome.interrupted else ''}"
        return
    if outcome.left:
        yield f"left running: {', '.join(outcome.left)}"
    text = outcome.err + outcome.out
    if _TRACEBACK.search(text) and not (given.wild and _BEYOND.search(outcome.err)):
        yield f"traceback: {_last(text)}"
    if given.wild and outcome.status == DEFECT:
        yield f"exit {DEFECT}: {_last(outcome.err)}"
    if not given.wild:
        yield from _status(step, outcome)
        yield from _lines(step, outcome)


def _status(step: Step, outcome: Outcome) -> Iterator[str]:
    sent = {-step.kill.signal} if step.kill else {-signal.SIGINT} if outcome.interrupted else set()
    if outcome.status not in {*STATUSES, *sent}:
        how = signal.Signals(-outcome.status).name if outcome.status < 0 else f"exit {outcome.status}"
        yield f"{how}: {_last(outcome.err)}"
    elif step.refused and outcome.status != 2 and not outcome.interrupted:
        yield f"not refused: exit {outcome.status}: {_last(outcome.err)}"


def _lines(step: Step, outcome: Outcome) -> Iterator[str]:
    """Every line is short, complaints are one line, and a refusal has it."""
    found = complaints(outcome.err)
    for line in outcome.err.splitlines():
        if len(line) > MOST:
            yield f"a line of {len(line)} characters: {line}"
    ours = [line for line in found if line.startswith("kernelmark: ")]
    others = [] if any(word in step.words for word in TALKS) else [line for line in found if line not in ours]
    if len(ours) > 1 or (len(ours) == 1 and others) or len(others) > 1:
        yield f"{len(ours) + len(others)} lines: {' | '.join(ours + others)}"
    if any(re.search(r"\b[A-Z]\w+Warning\b", line) for line in others):
        yield f"warning: {others[0]}"
    if outcome.status == 2 and not ours and step.err == "pipe" and step.kill is None:
        yield f"refused without a word: {_last(outcome.out)}"


def _last(text: str) -> str:
    """Return the last line that is not empty, cut."""
    return ascii(next((line for line in reversed(text.splitlines()) if line.strip()), ""))[1:-1][:200]
