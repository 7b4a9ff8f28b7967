"""The folder of a GPU's report: the store in it, what each stage came to, and the files that people read.

Every file is written again after each stage, from what the store holds then, so that a run that is cut off at any time
leaves a report of what it measured.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import msgspec
from tabulate import tabulate

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.figures import Drawn
from kernelmark.bench.report.publish import README, Report
from kernelmark.bench.report.publish_index import write_index
from kernelmark.bench.report.publish_readme import Publication, Readme

STORE, RUNS, LEFT_OUT = "results.db", "runs.json", "left_out.json"


class Outcome(msgspec.Struct):
    """What a stage came to. state: `done`, `cut off`, `failed` or `not begun`; text: its result, or the reason."""

    stage: str
    state: str
    text: str = ""
    seconds: float = 0.0


class Folder:
    """A report's folder; what several processes need to know of the run lies in files there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def store(self) -> Store:
        """Open the store."""
        return Store(self.path / STORE)

    def read(self, name: str) -> dict[str, str]:
        """The entries of a file of notes; none where it is not there yet."""
        try:
            found: dict[str, str] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def note(self, name: str, key: str, value: str) -> None:
        """Add an entry to a file of notes, whole or not at all."""
        self.write(name, json.dumps(self.read(name) | {key: value}, indent=2) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a file, whole or not at all."""
        new = self.path / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        new.rename(self.path / name)


def publish(folder: Folder, about: Publication, outcomes: list[Outcome], last: bool = False) -> None:
    """Write the files of a published report; one that cannot be written harms no other. Figures come last."""
    about = msgspec.structs.replace(about, runs=folder.read(RUNS), sections=list(_sections(folder, outcomes)))
    opened: list[Store] = []
    if (folder.path / STORE).exists():
        _guarded(lambda: opened.append(folder.store()))
    if not opened:
        _guarded(lambda: folder.write(README, Readme(None, about, None, (), "", {}).text()))
        return
    (store,) = opened
    try:
        report = Report(store, about)
        for name, make in report.texts().items():
            _guarded(lambda name=name, make=make: folder.write(name, make()))  # type: ignore[misc]
        drawn: list[Drawn] = []
        if last and find_spec("matplotlib"):
            _guarded(lambda: drawn.extend(report.draw(folder.path, None)))
        _guarded(lambda: folder.write(README, report.readme(folder.path, drawn)))
    finally:
        store.close()
    if last:
        _guarded(lambda: write_index(folder.path.parent))


def _guarded(write: Callable[[], object]) -> None:
    try:
        write()
    except (OSError, UsageError) as error:  # a full disk, say
        print(f"make gpu: {error}", file=sys.stderr)


def _sections(folder: Folder, outcomes: list[Outcome]) -> Iterator[tuple[str, str]]:
    """Yield what only a report of a GPU has: its stages, each saved when it ended, and kernels that were left out."""
    lines = [(one.stage, one.state, f"{one.seconds:.0f} s", one.text.replace("|", "\\|")) for one in outcomes]
    heads = ("stage", "state", "time", "what it came to")
    yield "Stages", tabulate(lines, heads, tablefmt="github", disable_numparse=True)
    if left_out := folder.read(LEFT_OUT):
        listed = "\n".join(f"- {kernel}: {reason}" for kernel, reason in left_out.items())
        yield "Kernels left out, since they took two workers along", listed
    yield "Every sample", f"[{STORE}]({STORE}) holds them; `kernelmark show --db {STORE}` reads it."


def against(folder: Folder) -> int:
    """Return how many rows went against their kernels."""
    with closing(folder.store()) as store:
        return sum(store.statuses(run)[status] for run in store.run_ids() for status in AGAINST)
