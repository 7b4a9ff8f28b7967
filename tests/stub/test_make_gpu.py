"""`make gpu` on the stub driver: an agenda with the real cuda-core and PyCUDA, and with the emulator as the device.

In each slot the device has one or two faults; in each affected task, a fault strikes one kernel.
"""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.record.store import Store
from stub.library import environment, is_built, pycuda_folder
from support.texts import csv_rows

REHEARSAL = Path(__file__).with_name("rehearsal.py")
DEADLINE_S = 540
#: The status of a kernel that each fault strikes, and a part of the reason. The fault that takes longest is first.
FAULTS = {
    "hang": ("timeout", "took more than"),
    "illegal": ("crashed", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "crash": ("crashed", "SIGSEGV"),
    "clock": ("failed", "passed on the host"),
    "oom": ("oom", "CUDA_ERROR_OUT_OF_MEMORY"),
}
#: The tasks that are struck, in order, each with the kernel, a part of its entry's name, and the number of the first
#: allocation that fails. The clocks are last, since kernels that are timed wrong there get no rows afterwards.
VERIFY = "verify transpose/cuda.tiled_inplace"
STRUCK = {
    "pycuda copy/cuda.vectorised": ("copy/cuda.vectorised", "copy_vectorised", "12"),
    VERIFY: ("transpose/cuda.tiled_inplace", "transpose_square", "12"),
    "time gemm": ("gemm/cuda.async", "sgemm_async", "12"),
    "tiles": ("gemm/cuda.async", "sgemm_async", "1"),
    "emulator gemm/cuda.async": ("gemm/cuda.async", "sgemm_async", "1"),
    "clocks": ("copy/cuda.way", "selftest_spin", "1"),
}
#: The tasks that run jobs, whose rows have a status; the tasks that read a clock, in which the clock can jump.
JOBS, TIMED = list(STRUCK)[:4], ("time gemm", "tiles", "clocks")
#: The kinds of tasks, each of which is answered in spite of any fault.
KINDS = ("verify", "time", "tiles", "emulator", "clocks")


class Slot(NamedTuple):
    """A slot that has ended: its exit status, its output, and the folder of its report."""

    status: int
    printed: str
    folder: Path

    @property
    def rows(self):
        return csv_rows(self.folder / "results.csv")

    @property
    def agenda(self):
        return json.loads((self.folder / "agenda.json").read_text())

    def rows_of(self, task):
        """Return the rows of the run that answered a task; the run may have answered other tasks, too."""
        run = self.agenda["answers"][task]["run"]
        return [row for row in self.rows if row["run_id"] == run]


def use(out, struck, only=""):
    at = {task: (fault, STRUCK[task][2 if fault == "oom" else 1]) for task, fault in struck.items()}
    paced = {"KM_STUB_PACED": "1", "KM_STUB_LENGTH_NS": "2000000", "KM_STUB_EMULATES": "1"}
    device = " ".join([*sorted({*struck.values()}), only])  # unique, since two slots of a device are refused
    variables = {"GPU_FAULTS": json.dumps(at), "KM_STUB_UUID": device}
    command = [sys.executable, str(REHEARSAL), "--out", str(out), "--deadline", str(DEADLINE_S), "--only", only]
    env = environment(pycuda_folder() if is_built() else None, **paced, **variables)
    done = subprocess.run(command, env=env, cwd=out, capture_output=True, text=True, timeout=DEADLINE_S + 30)
    printed = done.stdout + done.stderr
    print(printed)
    folders = [path for path in out.iterdir() if path.is_dir()]
    assert len(folders) == 1, printed
    slot = Slot(done.returncode, printed, folders[0])
    assert unreadable(slot) == []
    return slot


def unreadable(slot):
    """Return complaints about a report's files: incomplete ones, or results and environment that disagree."""
    folder = slot.folder
    wrong = [name for name in ("README.md", "agenda.json") if not (folder / name).read_text().endswith("\n")]
    if os.uname().nodename in (folder / "README.md").read_text():
        wrong.append("README.md names the host")
    if not (folder / "results.db").exists():
        return wrong
    with closing(sqlite3.connect(folder / "results.db")) as store:
        ((state,),) = store.execute("PRAGMA integrity_check").fetchall()
    with Store(folder / "results.db", create=False) as opened:
        count = sum(sum(opened.statuses(run).values()) for run in opened.run_ids())
    rows = slot.rows
    if state != "ok" or len(rows) != count:
        wrong.append(f"results.db is {state} and has {count} rows, results.csv has {len(rows)}")
    runs = json.loads((folder / "environment.json").read_text())["runs"]
    if missing := {row["run_id"] for row in rows} - set(runs.values()):
        wrong.append(f"environment.json does not name the runs {missing}")
    return wrong


def strikes(slot, task, fault):
    """Assert that each kernel of a task has a row, and only the struck kernel and kernels left out have a bad one."""
    rows, (status, reason) = slot.rows_of(task), FAULTS[fault]
    assert {row["device"] for row in rows} == {"cuda"}
    # On a busy machine the host may wake up so late that a row is mistrusted.
    bad = [row for row in rows if row["status"] not in ("ok", "mistrusted")]
    if fault == "oom":  # may not strike again if the kernel runs alone in a fresh process
        assert all(reason in row["reason"] for row in bad)
        assert bad or any("with other kernels it was oom: " in row["disturbed"] for row in rows)
        return
    assert {row["status"] for row in bad} == {status}
    assert [row for row in bad if reason not in row["reason"]] == []
    left_out = {row["kernel"] for row in bad if row["reason"].startswith("left out after")}
    assert left_out <= set(slot.agenda["left_out"])
    assert {row["kernel"].partition("@")[0] for row in bad} - left_out == {STRUCK[task][0]}


@pytest.mark.long
@pytest.mark.parametrize("fault", ["hang", "illegal", "crash", "oom"])
def test_a_fault_fails_only_the_kernel_that_it_strikes(fault, tools, tmp_path):
    faults = {task: fault for task in STRUCK if is_built() or not task.startswith("pycuda")}
    if fault == "crash":
        faults |= dict.fromkeys(TIMED, "clock")
    slot = use(tmp_path, faults)
    assert slot.status == (FAULTS[fault][0] in AGAINST), slot.printed  # out of memory is not the kernel's fault
    answers = slot.agenda["answers"]
    emulated = "emulator gemm/cuda.async"
    failed = {name for name, answer in answers.items() if answer["state"] == "failed"}
    assert failed == ({emulated} if fault == "hang" else set())
    assert {name.split()[0] for name in answers} >= set(KINDS)
    for task in filter(faults.__contains__, JOBS):
        strikes(slot, task, faults[task])
    left_out = {kernel.partition("@")[0] for kernel in slot.agenda["left_out"]}
    assert left_out <= {STRUCK[task][0] for task in faults}
    assert bool(left_out) is (fault in ("hang", "illegal", "crash"))
    if emulated in faults:
        words = "not finished" if fault == "hang" else "differ"
        assert answers[emulated]["text"].startswith(words)
        assert answers["emulator copy/cuda.vectorised"]["text"].startswith("differ" if fault == "oom" else "agree")
    assert "*/cuda.*" in slot.agenda["disagreeing"]["cuda-core"]
    timed = [row for row in slot.rows if row["time_s_median"]]
    assert {float(row["time_s_median"]) for row in timed} <= {0.002}


@pytest.mark.long
def test_kernels_of_a_launcher_that_is_timed_wrong_get_no_rows_afterwards(tools, tmp_path):
    first = use(tmp_path, {"clocks": "clock"}, only="clocks")
    assert "*/cuda.*" in first.agenda["disagreeing"]["cuda-core"]
    assert "cuda-core: gave wrong times" in (first.folder / "README.md").read_text()
    second = use(tmp_path, {})
    assert list(second.agenda["answers"]) == ["clocks"]  # all other tasks have lost their kernels
    assert second.status == 0, second.printed


def test_a_kernel_that_crashes_its_process_is_named_and_the_others_are_verified(tools, tmp_path):
    slot = use(tmp_path, {VERIFY: "crash"}, only="verify ")
    assert slot.status == 1, slot.printed
    strikes(slot, VERIFY, "crash")
    assert len(slot.rows) == len(slot.agenda["answers"]) == 4
    struck = STRUCK[VERIFY][0]
    assert list(slot.agenda["left_out"]) == [struck]
    assert f"{struck} is left out: crashed" in (slot.folder / "README.md").read_text()
