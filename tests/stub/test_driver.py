"""The real cuda-core and cuda-bindings start on the stub driver, whose clock gives each launch a known length."""

from pathlib import Path

import numpy as np

from bench.measure.cuda import cuda_missing
from stub.library import on_stub


def test_only_the_process_that_asks_for_the_stub_sees_it(tmp_path: Path) -> None:
    before = cuda_missing()
    assert on_stub("bench.measure.cuda:cuda_missing", tmp_path).value is None
    cuda_missing.cache_clear()
    assert cuda_missing() == before


def test_cuda_core_reads_the_devices_properties(tmp_path: Path) -> None:
    run = on_stub("stub.programs:properties", tmp_path)
    assert run.value == [1, "kernelmark stub", "sm_90", 132, True]
    assert run.violations == []


def test_there_is_no_undocumented_table(tmp_path: Path) -> None:
    assert on_stub("stub.programs:export_table", tmp_path).value == "CUDA_ERROR_NOT_FOUND"


def test_bytes_come_back_over_pinned_and_device_memory(tmp_path: Path) -> None:
    run = on_stub("stub.programs:copies", tmp_path)
    assert run.value == list(range(64))
    assert run.violations == []


def test_a_span_is_the_length_of_its_launches_to_an_ulp_of_float32_milliseconds(tmp_path: Path) -> None:
    run = on_stub("stub.programs:spans", tmp_path)
    exact = [0.0, 1e-6, 0.999999, 617.283945]
    assert run.value == [float(np.float32(ms)) for ms in exact]
    assert run.violations == []


def test_a_launch_takes_what_its_own_kernel_takes(tmp_path: Path) -> None:
    assert on_stub("stub.programs:lengths_by_kernel", tmp_path).value == [2.0]


def test_the_hosts_cost_of_a_launch_is_in_a_span_unless_the_stream_is_held(tmp_path: Path) -> None:
    run = on_stub("stub.programs:held_span", tmp_path)
    # Eleven calls follow the first record, the last launch ends after the last record was made, at 55 us.
    assert run.value == {"free": float(np.float32(0.055)), "held": float(np.float32(0.010))}
    assert run.violations == []
