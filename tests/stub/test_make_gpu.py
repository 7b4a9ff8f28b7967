"""`make gpu` on the stub driver: all stages, through the real cuda-core and PyCUDA, with the emulator as the device.

In each report the device has one fault, which strikes another kernel in every stage that uses the device.
"""

import json
from pathlib import Path

import pytest
from tabulate import tabulate

from gpu_reports import STUB_DEADLINE_S, Report, begin_on_stub, end, unreadable
from kernelmark.bench.plan.status import AGAINST
from scripts import script

#: The status that each fault gives to a kernel that it strikes, and what the reason has. The longest comes first.
FAULTS = {
    "hang": ("timeout", "took more than"),
    "illegal": ("crashed", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "crash": ("crashed", "SIGSEGV"),
    "clock": ("failed", "of the host's clock"),
    "oom": ("oom", "CUDA_ERROR_OUT_OF_MEMORY"),
}
#: The stages that use the device, each with the kernel that is struck, a part of its entry's name, and the number of
#: the allocation from which on there is no memory.
STRUCK = {
    "every kernel once": ("transpose/cuda.tiled_inplace", "transpose_square", "4"),
    "bars": ("gemm/cuda.async", "sgemm_async", "1"),
    "suites": ("gemm/cuda.async", "sgemm_async", "9"),
    "second launcher": ("copy/cuda.vectorised", "copy_vectorised", "4"),
    "several processes": ("gemm/cuda.tiled", "sgemm_tiled", "1"),
    "emulator": ("gemm/cuda.async", "sgemm_async", "1"),
    "clocks": ("copy/cuda.way", "selftest_spin", "1"),
}
#: Stages that measure by jobs; those that read no clock, where a jump of the device's costs nothing.
JOBS = ("every kernel once", "suites", "second launcher", "several processes")
UNTIMED = ("every kernel once", "second launcher", "emulator")
STAGES = tuple(script("gpu_stages").STAGES)


def faulty(out: Path, packages: Path | None, fault: str, *struck: str, only: tuple[str, ...] = STAGES) -> Report:
    """Return a report whose device has the fault in these stages, and print what each of them came to."""
    at = {stage: (fault, STRUCK[stage][2 if fault == "oom" else 1]) for stage in struck}
    own = f"{fault} {len(only)}"  # reports of one device would be refused at the same time
    variables = {"GPU_FAULTS": json.dumps(at), "GPU_STAGES": json.dumps(only), "KM_STUB_UUID": own}
    if fault != "illegal":
        variables["GPU_FIGURES"] = "none"
    with begin_on_stub(out, packages, **variables) as process:
        found = end(process, out, STUB_DEADLINE_S)
    lines = [(stage, fault, *found.stages[stage]) for stage in struck]
    print(tabulate(lines, ("stage", "fault", "state", "line"), maxcolwidths=60))
    assert unreadable(found.folder) == []
    assert {stage: state for stage, (state, _) in found.stages.items()} == dict.fromkeys(only, "done")
    assert found.status == int(any(row["status"] in AGAINST for row in found.rows))
    return found


def statuses(found: Report, stage: str) -> dict[str, tuple[str, str]]:
    """Return the status and the reason of each kernel of the device that the stage measured."""
    begins = "3 processes" if stage == "several processes" else stage
    runs = {
        run for name, run in json.loads((found.folder / "runs.json").read_text()).items() if name.startswith(begins)
    }
    rows = [row for row in found.rows if row["run_id"] in runs and row["device"] == "cuda"]
    return {row["kernel"]: (row["status"], row["reason"]) for row in rows}


def strikes(found: Report, stage: str, fault: str, left_out: set[str]) -> None:
    """Assert that the stage has a row with its status for each kernel, right but for those struck and left out."""
    rows, (status, reason) = statuses(found, stage), FAULTS[fault]
    # On a busy machine the host may wake up so late that a row is mistrusted.
    bad = {kernel for kernel, (status, _) in rows.items() if status not in ("ok", "mistrusted")}
    assert {rows[kernel][0] for kernel in bad} == {status}
    assert [kernel for kernel in bad if reason not in rows[kernel][1]] == []
    if fault != "oom":
        assert bad == ({STRUCK[stage][0]} | left_out) & set(rows)


def disagrees(found: Report) -> None:
    """Assert that kernels that are launched by cuda-core would get no rows from here on."""
    assert "*/cuda.*" in json.loads((found.folder / "disagreeing.json").read_text())["cuda-core"]


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_what_it_strikes_and_the_rest_is_measured(fault: str, pycuda: Path, tmp_path: Path) -> None:
    where = [stage for stage in STRUCK if not (fault == "clock" and stage in UNTIMED)]
    if fault == "illegal":  # every stage is there, and the clocks are sound
        found = faulty(tmp_path, pycuda, fault, *where[:-1])
        assert found.stages["clocks"][1].startswith("9 ways, 3 disagree")  # those that the stand-in for CuPy lacks
    else:  # the clocks come last, since kernels of a way that is timed wrong get no rows after them
        found = faulty(tmp_path, pycuda, fault, *where, only=tuple(where))
        disagrees(found)
    left_out: set[str] = set()
    for stage in filter(where.__contains__, JOBS):
        strikes(found, stage, fault, left_out)
        if FAULTS[fault][0] == "crashed":
            left_out.add(STRUCK[stage][0])
    file = found.folder / "left_out.json"
    assert set(json.loads(file.read_text()) if file.exists() else ()) == left_out
    (bar,) = (line for line in (found.folder / "bars.md").read_text().splitlines() if STRUCK["bars"][0] in line)
    assert bar.startswith("| absent")
    assert ("without an answer" if fault == "hang" else FAULTS[fault][1]) in bar
    if "emulator" in where:
        compared = (found.folder / "emulator.md").read_text()
        assert compared.count(": differ") == (4 if fault == "oom" else 1)
        assert f"- {STRUCK['emulator'][0]}: differ" in compared
    times = {row["time_s_median"] for row in found.rows if row["device"] == "cuda" and row["time_s_median"]}
    assert {float(text) for text in times} <= {0.002}


@pytest.mark.long
def test_a_way_of_launching_that_breaks_the_device_gets_no_rows(tools: None, tmp_path: Path) -> None:
    disagrees(faulty(tmp_path, None, "illegal", "clocks", only=("clocks", "claims")))


def test_a_kernel_that_takes_its_process_along_is_named_and_the_others_are_verified(
    tools: None, tmp_path: Path
) -> None:
    stage = "every kernel once"
    found = faulty(tmp_path, None, "crash", stage, only=(stage,))
    strikes(found, stage, "crash", set())
    assert list(json.loads((found.folder / "left_out.json").read_text())) == [STRUCK[stage][0]]
