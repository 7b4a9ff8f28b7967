"""`make gpu` rehearsed on the fake device: each stage fails, SIGTERM comes at any moment, the disk is full.

In each case a readable folder stands within the deadline, the other stages are done, and the reason is written.
"""

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tabulate import tabulate

from gpu_reports import DEADLINE_S, Report, begin, end, report, unreadable
from scripts import script

#: What the line of a stage has for each fault; work under a jumping clock may come to anything.
REASONS = {
    "crash": "SIGABRT",
    "exit": "the process ended with status 0",
    "hang": "without an answer",
    "oom": "MemoryError: 4 PB wanted",
    "raise": "RuntimeError: no luck",
}
#: The faults of each report by stage. Each stage has two different ones, and is done where another fails.
REPORTS = [
    {"clocks": "crash", "bars": "raise", "second launcher": "oom", "emulator": "exit"},
    {"clocks": "raise", "suites": "exit", "several processes": "crash", "cuDNN": "hang"},
    {"compilation": "raise", "every kernel once": "hang", "bars": "exit", "several processes": "raise"},
    {"every kernel once": "crash", "suites": "clock", "claims": "raise", "emulator": "oom"},
    {"compilation": "hang", "second launcher": "hang", "claims": "oom", "cuDNN": "exit"},
]
STAGES = tuple(script("gpu_stages").STAGES)
TERMINATIONS = 20


def shown(table: list[tuple[object, ...]], *headers: str) -> None:
    print(tabulate(table, headers=headers))


def test_each_stage_has_two_faults_and_stands_sound_beside_each_other_one() -> None:
    for stage in STAGES:
        faults = [report[stage] for report in REPORTS if stage in report]
        assert len(set(faults)) == 2, stage
        beside = {other for report in REPORTS if stage in report for other in STAGES if other not in report}
        assert beside == set(STAGES) - {stage}


@pytest.mark.long
@pytest.mark.parametrize("faults", REPORTS, ids=lambda faults: "-".join(faults).replace(" ", "-"))
def test_stages_may_fail_and_all_others_are_done(faults: dict[str, str], tmp_path: Path) -> None:
    found = report(tmp_path, "none", GPU_FAULTS=json.dumps(faults), GPU_FAULT_LIMIT_S="9", GPU_FIGURES="none")
    shown([(stage, fault, *found.stages[stage]) for stage, fault in faults.items()], "stage", "fault", "state", "line")
    states = {name: state for name, (state, _) in found.stages.items() if faults.get(name) != "clock"}
    failed = {stage: fault for stage, fault in faults.items() if fault != "clock"}
    assert states == {stage: "failed" if stage in failed else "done" for stage in STAGES if stage in states}
    assert len(found.stages) == len(STAGES)
    assert [stage for stage, fault in failed.items() if REASONS[fault] not in found.stages[stage][1]] == []
    assert (found.status, unreadable(found.folder)) == (1, [])


@pytest.mark.long
def test_sigterm_at_any_moment_leaves_a_readable_folder(tmp_path: Path) -> None:
    dice, table = random.Random(13), []
    began = time.monotonic()
    report(tmp_path / "whole", "none", GPU_FIGURES="none")  # as those that are ended: no moment comes after the end
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
    with begin(out, "none", GPU_FIGURES="none") as process:
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
