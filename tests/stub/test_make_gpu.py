"""`make gpu` on the stub driver: all stages, through the real cuda-core and PyCUDA, with the emulator as the device."""

import json
from pathlib import Path

import pytest

from gpu_reports import begin_on_stub, end, unreadable

BROKEN = "gemm/cuda.async"


@pytest.mark.long
def test_every_stage_is_done_and_a_kernel_that_breaks_the_device_is_left_out(pycuda: Path, tmp_path: Path) -> None:
    with begin_on_stub(tmp_path, pycuda, KM_STUB_ILLEGAL="gemm/async.cu") as process:
        found = end(process, tmp_path)
    assert (found.status, unreadable(found.folder)) == (1, [])
    assert len(found.stages) == 9
    assert {state for state, _ in found.stages.values()} == {"done"}
    assert found.stages["clocks"][1].startswith("9 ways, 3 disagree")  # those that the stand-in for CuPy lacks
    assert found.stages["second launcher"][1] == "4 rows: 3 ok, 1 crashed"
    assert list(json.loads((found.folder / "left_out.json").read_text())) == [BROKEN]
    rows = [row for row in found.rows if row["device"] == "cuda"]
    assert {row["kernel"] for row in rows if row["status"] != "ok"} == {BROKEN}
    times = {row["kernel"]: float(row["time_s_median"]) for row in rows if row["time_s_median"]}
    assert times == dict.fromkeys(("gemm/cuda.tiled", "copy/cuda.vectorised"), 0.002)
