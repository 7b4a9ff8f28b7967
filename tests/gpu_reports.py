"""Begins reports of a GPU on the fake device (gpu_report_rig.py), and reads them as their users would."""

import csv
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from kernelmark.bench.record.store import Store
from stub.library import environment

TESTS = Path(__file__).resolve().parent
DEADLINE_S = 240
#: The stages of the stub's reports begin many processes, which take their time on a busy machine.
STUB_DEADLINE_S = 540


class Report(NamedTuple):
    """A finished report: its exit status, its folder, and the state and the text of each stage."""

    status: int
    folder: Path
    stages: dict[str, tuple[str, str]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        with (self.folder / "results.csv").open() as file:
            return list(csv.DictReader(file))


def begin_on_stub(out: Path, packages: Path | None, **variables: str) -> "subprocess.Popen[str]":
    """Begin a report of the stub driver, whose launches take 2 ms, by a few kernels; `packages` may have PyCUDA."""
    paced = {"KM_STUB_PACED": "1", "KM_STUB_LENGTH_NS": "2000000", "KM_STUB_EMULATES": "1"}
    return _begun(TESTS / "stub" / "rehearsal.py", out, STUB_DEADLINE_S, environment(packages, **paced, **variables))


def begin(out: Path, fault: str, deadline_s: float = DEADLINE_S, **variables: str) -> "subprocess.Popen[str]":
    """Begin a report in a process of its own, which prints the folder first and each stage when it ends."""
    path = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS.parent / "tools")))
    env = {**os.environ, "PYTHONPATH": path, "GPU_FAULT": fault, **variables}
    return _begun(TESTS / "gpu_report_rig.py", out, deadline_s, env)


def _begun(script: Path, out: Path, deadline_s: float, env: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, str(script), "--out", str(out), "--deadline", str(deadline_s)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process: "subprocess.Popen[str]", out: Path, deadline_s: float = DEADLINE_S) -> Report:
    """Wait for a report, no longer than its deadline and the start of Python, and read it."""
    process.communicate(timeout=deadline_s + 30)
    (folder,) = (path for path in out.iterdir() if path.is_dir())
    return Report(process.returncode, folder, stages(folder))


def report(out: Path, fault: str, deadline_s: float = DEADLINE_S, **variables: str) -> Report:
    """Return a whole report."""
    with begin(out, fault, deadline_s, **variables) as process:
        return end(process, out, deadline_s)


def stages(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the state and the text of each stage."""
    section = (folder / "README.md").read_text().partition("## Stages\n")[2].partition("\n## ")[0]
    lines = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    return {name.strip(): (state.strip(), text.strip()) for name, state, _, text in lines[2:]}


def unreadable(folder: Path) -> list[str]:
    """Return what is missing or torn in a report that has rows."""
    wrong = [name for name in ("README.md", "tables.md") if not (folder / name).read_text().endswith("\n")]
    runs = json.loads((folder / "environment.json").read_text())["runs"]
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file, strict=True))
    with closing(sqlite3.connect(folder / "results.db")) as store:
        ((state,),) = store.execute("PRAGMA integrity_check").fetchall()
    opened = Store(folder / "results.db", create=False)
    count = sum(sum(opened.statuses(run).values()) for run in opened.run_ids())
    opened.close()
    if state != "ok":
        wrong.append(f"results.db: {state}")
    if len(rows) != count:
        wrong.append(f"results.csv has {len(rows)} rows, and results.db has {count}")
    if missing := {row["run_id"] for row in rows} - set(runs.values()):
        wrong.append(f"environment.json does not name the runs {missing}")
    return wrong
