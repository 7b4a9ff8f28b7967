"""Whatever a stage does, the report stands within its deadline: the rest is measured, and the reason is written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpu_reports import TESTS, report
from kernelmark.bench.measure import lock
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.suites import find_suite
from scripts import script


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param("hang", "ended after 17 s without an answer", marks=pytest.mark.long),
        ("crash", "SIGABRT"),
        pytest.param("raise", "RuntimeError: no luck", marks=pytest.mark.long),
        pytest.param("oom", "MemoryError: 4 PB wanted", marks=pytest.mark.long),
        pytest.param("exit", "the process ended with status 0", marks=pytest.mark.long),
    ],
)
def test_a_stage_that_fails_is_named_with_the_reason_and_the_others_are_measured(
    tmp_path: Path, fault: str, reason: str
) -> None:
    found = report(tmp_path, fault)
    assert found.status == 1
    assert found.stages == {
        "first": ("done", "4 rows: 4 ok"),
        "faulty": ("failed", reason),
        "last": ("done", "4 rows: 4 ok"),
    }
    runs = json.loads((found.folder / "environment.json").read_text())["runs"]
    assert [row["run_id"] for row in found.rows] == [runs["first"]] * 4 + [runs["last"]] * 4


def test_sigterm_publishes_what_there_is(tmp_path: Path) -> None:
    found = report(tmp_path, "term")
    assert found.status == 143
    assert [state for state, _ in found.stages.values()] == ["done", "cut off", "not begun"]
    assert found.stages["last"] == ("not begun", "SIGTERM came first")
    assert len(found.rows) == 4
    assert (found.folder / "begun.md").exists()


@pytest.mark.long
def test_the_deadline_ends_the_stage_in_hand_and_begins_no_other(tmp_path: Path) -> None:
    found = report(tmp_path, "hang", deadline_s=30, GPU_FAULT_LIMIT_S="540")
    assert found.status == 1
    assert [state for state, _ in found.stages.values()] == ["done", "failed", "not begun"]
    assert found.stages["last"] == ("not begun", "the deadline came first")
    assert len(found.rows) == 4


def test_a_job_ends_at_the_deadline_of_its_stage(tmp_path: Path) -> None:
    task, began = script("gpu_task"), now()
    stage = task.Task(task.Question("suites", task.Settings(str(tmp_path), "cpu"), began + 4))
    plan = Plan(("cpu",), ("gemm/numpy.matmul",), threads=(1,), max_time_s=100.0, rel_ci=1e-9, ceilings=False)
    text = stage.measure(plan, [find_suite("gemm/m512n512k512/f32/NN", stage.registry)])
    assert text == "no rows, cut off at its deadline"
    assert now() - began < 60


def test_a_report_without_faults_has_status_0_and_names_no_machine(tmp_path: Path) -> None:
    found = report(tmp_path, "none")
    assert found.status == 0
    assert found.folder.name.startswith("a-fake-")
    text = "".join(path.read_text() for path in found.folder.iterdir() if path.suffix in (".md", ".json", ".csv"))
    assert os.uname().nodename not in text


def test_a_stage_fails_where_another_run_has_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages, task = script("gpu_stages"), script("gpu_task")
    monkeypatch.setattr(lock, "gpu_uuids", lambda: ["of a test"])
    question = task.Question("claims", task.Settings(str(tmp_path)), now() + 60)
    monkeypatch.setattr(lock, "MACHINE", tmp_path)
    with lock.exclusive(("cuda",), shared=False):
        (found,) = stages.replies([msgspec.json.encode(question).decode()])
    assert "is being measured by process" in found["failed"]


def test_without_a_gpu_nothing_is_written(tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (TESTS.parent, TESTS.parent / "tools")))
    done = subprocess.run(
        [sys.executable, str(TESTS.parent / "tools" / "gpu.py"), "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("make gpu: ")
    assert not (tmp_path / "out").exists()
