"""The real cuda-core and cuda-bindings start on the stub driver, whose clock gives each launch a known length."""

from pathlib import Path

import numpy as np
import pytest

from kernelmark.bench.measure.present import cuda_missing
from stub.library import Run, on_stub

NAMES = (
    "properties",
    "export_table",
    "copies",
    "spans",
    "lengths_by_kernel",
    "held_span",
    "cuda_core_graph",
    "launches_read",
)


@pytest.fixture(scope="module")
def runs(tools: None, folder: Path) -> dict[str, Run]:
    calls = {name: (f"stub.programs:{name}",) for name in NAMES}
    return on_stub({"missing": ("kernelmark.bench.measure.present:cuda_missing",), **calls}, folder)


def test_only_the_process_that_asks_for_the_stub_sees_it(runs: dict[str, Run]) -> None:
    before = cuda_missing()
    assert runs["missing"].value is None
    cuda_missing.cache_clear()
    assert cuda_missing() == before


def test_no_rule_is_broken_but_by_the_call_that_synchronises_in_a_capture(runs: dict[str, Run]) -> None:
    broken = {name: run.violations for name, run in runs.items() if run.violations}
    assert broken == {"launches_read": ["cuStreamSynchronize was called while a stream was capturing"]}


def test_cuda_core_reads_the_devices_properties(runs: dict[str, Run]) -> None:
    assert runs["properties"].value == [1, "kernelmark stub", "sm_90", 132, True]


def test_there_is_no_undocumented_table(runs: dict[str, Run]) -> None:
    assert runs["export_table"].value == "CUDA_ERROR_NOT_FOUND"


def test_bytes_come_back_over_pinned_and_device_memory(runs: dict[str, Run]) -> None:
    assert runs["copies"].value == list(range(64))


def test_a_span_is_the_length_of_its_launches_to_an_ulp_of_float32_milliseconds(runs: dict[str, Run]) -> None:
    exact = [0.0, 1e-6, 0.999999, 617.283945]
    assert runs["spans"].value == [float(np.float32(ms)) for ms in exact]


def test_a_launch_takes_what_its_own_kernel_takes(runs: dict[str, Run]) -> None:
    assert runs["lengths_by_kernel"].value == [2.0]


def test_the_hosts_cost_of_a_launch_is_in_a_span_unless_the_stream_is_held(runs: dict[str, Run]) -> None:
    # Eleven calls follow the first record, the tenth launch and the last record, 5 us each.
    assert runs["held_span"].value == {"free": float(np.float32(0.055)), "held": float(np.float32(0.010))}


def test_a_graph_of_cuda_core_runs_its_launches_on_each_replay_and_none_before(runs: dict[str, Run]) -> None:
    assert runs["cuda_core_graph"].value == {"before": 0, "ran": ["07000000"] * 6, "span": 9.0}


def test_the_launches_of_a_call_are_read_from_its_graph_and_none_is_run(runs: dict[str, Run]) -> None:
    found, one = runs["launches_read"].value, "scaled<<<1,1,1 x 32,1,1>>>"
    assert found["both"] == "scaled<<<3,2,1 x 8,4,2>>>; scaled<<<5,1,7 x 64,1,1>>>"
    assert (found["none"], found["waits"], found["raises"]) == ("", "", "")
    assert (found["eight"], found["eleven"]) == ("; ".join([one] * 8), "; ".join([*[one] * 8, "and 3 more"]))
    assert found["long"] == f"{('longer_' * 30)[:117]}...<<<1,1,1 x 32,1,1>>>"
    assert (found["before"], found["after"]) == (0, 2)
