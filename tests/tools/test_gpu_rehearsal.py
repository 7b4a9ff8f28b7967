"""`make gpu` rehearsed on the fake device: each stage fails in turn, SIGTERM comes at any moment, the disk is full.

In each case a readable folder stands within the deadline, the other stages are done, and the reason is written.
"""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tabulate import tabulate

from gpu_reports import DEADLINE_S, Report, begin, end, report, unreadable

#: The fault of each stage, with the reason that its line has.
FAULTS = {
    "clocks": ("crash", "SIGABRT"),
    "every kernel once": ("hang", "without an answer"),
    "bars": ("raise", "RuntimeError: no luck"),
    "suites": ("exit", "the process ended with status 0"),
    "second launcher": ("oom", "MemoryError: 4 PB wanted"),
    "several processes": ("crash", "SIGABRT"),
    "claims": ("raise", "RuntimeError: no luck"),
    "cuDNN": ("hang", "without an answer"),
    "emulator": ("exit", "the process ended with status 0"),
}
TERMINATIONS = 20


def shown(table: list[tuple[object, ...]], *headers: str) -> None:
    print(tabulate(table, headers=headers))


@pytest.mark.long
@pytest.mark.parametrize("stage", FAULTS)
def test_a_stage_may_fail_and_all_others_are_done(stage: str, tmp_path: Path) -> None:
    fault, reason = FAULTS[stage]
    found = report(tmp_path, fault, GPU_FAULTY_STAGE=stage, GPU_FAULT_LIMIT_S="9")
    states = {name: state for name, (state, _) in found.stages.items()}
    shown([(stage, fault, found.status, found.stages[stage][1])], "stage", "fault", "status", "its line")
    assert states == dict.fromkeys(FAULTS, "done") | {stage: "failed"}
    assert reason in found.stages[stage][1]
    assert (found.status, unreadable(found.folder)) == (1, [])


@pytest.mark.long
def test_a_stage_whose_clock_jumps_ends_and_harms_no_other(tmp_path: Path) -> None:
    found = report(tmp_path, "clock", GPU_FAULTY_STAGE="suites")
    assert {state for name, (state, _) in found.stages.items() if name != "suites"} == {"done"}
    assert unreadable(found.folder) == []


@pytest.mark.long
def test_sigterm_at_any_moment_leaves_a_readable_folder(tmp_path: Path) -> None:
    dice, table = random.Random(13), []
    began = time.monotonic()
    report(tmp_path / "whole", "none")
    whole_s = time.monotonic() - began
    for number in range(TERMINATIONS):
        moment_s = dice.uniform(0, 0.8 * whole_s)
        found = terminated(tmp_path / str(number), moment_s)
        states = [state for state, _ in found.stages.values()]
        table.append((f"{moment_s:.2f} s", found.status, ", ".join(states)))
        if set(states) != {"done"}:  # else it came while Python was ending
            assert found.status == 128 + signal.SIGTERM
        assert states == sorted(states, key=("done", "cut off", "not begun").index)
        if (found.folder / "results.db").exists():
            assert unreadable(found.folder) == []
    shown(table, "SIGTERM after", "status", "stages")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_lost_connection_end_a_report_as_sigterm_does(number: signal.Signals, tmp_path: Path) -> None:
    found = terminated(tmp_path, 0.5, number)
    assert found.status == 128 + signal.SIGTERM
    assert found.stages["last"] == ("not begun", "SIGTERM came first")


def terminated(out: Path, moment_s: float, number: signal.Signals = signal.SIGTERM) -> Report:
    """End a report so long after it has printed its folder."""
    with begin(out, "none") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("make gpu: ")
        time.sleep(moment_s)
        process.send_signal(number)
        return end(process, out)


@pytest.mark.long
def test_a_full_disk_costs_what_finds_no_room_and_the_report_still_ends(small_disk: Callable[[str], Path]) -> None:
    with begin(small_disk("128k"), "none") as process:
        printed, _ = process.communicate(timeout=DEADLINE_S + 30)
    assert process.returncode == 1, printed
    assert "No space left on device" in printed or "is full" in printed
    assert "Traceback" not in printed
