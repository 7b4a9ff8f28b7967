"""What is wrong with how an input ended: each rule that every command keeps, whatever it is given."""

import csv
import io
import os
import re
import signal
from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from fuzz.inputs import Input, Step
from fuzz.perform import Found, Outcome
from kernelmark.bench.cli.options import DEFECT
from support.processes import complaints

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
    if given.wild or any(outcome.hung for outcome in found.outcomes):
        return of_steps
    words = [text for step in given.steps for word in step.words for text in (word, word.rpartition("=")[2])]
    named = {os.path.normpath(word) for word in (*words, *given.asked)}
    of_steps += [f"file left or changed: {name}" for name in found.changed if not _is_asked_for(name, named)]
    return of_steps + [f"temporary file left: {name}" for name in found.temporary if "-defect-" not in name]


def _is_asked_for(name: str, named: set[str]) -> bool:
    """Return whether a file is named, lies in a folder that is or is one to it, or begins as a file that is named."""
    if "." in named or "__pycache__" in name or name in named:
        return True
    if any(place.startswith(f"{name}/") or name.startswith(f"{place}/") for place in named):
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
        yield from _data(step, outcome)


def _status(step: Step, outcome: Outcome) -> Iterator[str]:
    sent = {-signal.SIGINT} if outcome.interrupted else set()
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
    if outcome.status == 2 and not ours and step.err == "file":
        yield f"refused without a word: {_last(outcome.out)}"


def _data(step: Step, outcome: Outcome) -> Iterator[str]:
    """JSON and CSV can be read."""
    other = {"--help", "-h", "_KERNELMARK_COMPLETE"}.intersection((*step.words, *step.variables))
    if outcome.status != 0 or step.out != "file" or other:
        return
    style = re.findall(r"--format[ =](\w+)", " ".join(step.words)) or ["csv"]
    try:
        if "--json" in step.words or (step.words[:1] == ("export",) and style[-1] == "json" and outcome.out):
            msgspec.json.decode(outcome.out.encode(errors="surrogateescape"))
        elif step.words[:1] == ("export",) and style[-1] == "csv":
            widths = {len(row) for row in csv.reader(io.StringIO(outcome.out, newline=""), strict=True)}
            if len(widths) > 1:
                yield f"no CSV: lines of {' and '.join(map(str, sorted(widths)))} cells"
    except (ValueError, csv.Error) as error:
        yield f"no {'CSV' if isinstance(error, csv.Error) else 'JSON'}: {error}"


def _last(text: str) -> str:
    return ascii(next((line for line in reversed(text.splitlines()) if line.strip()), ""))[1:-1][:200]
