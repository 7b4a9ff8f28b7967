"""Files of nvbench as runs of their own.

tests/data/nvbench.json is laid out as nvbench's printer does it (nvbench/json_printer.cu); its numbers are made up.
"""

import array
import json
from pathlib import Path

import pytest

NVBENCH = Path(__file__).parents[1] / "data" / "nvbench.json"


def test_nvbench_gives_a_run_a_device(imported):
    one, other = imported(NVBENCH)
    assert [run.machine["gpu"] for run, _ in (one, other)] == ["GPU A", "GPU B"]
    assert one[0].machine["compute_capability"] == "9.0"
    assert {r.device_name for r, _ in other[1].values()} == {"GPU B"}


def test_nvbench_isolated_times_are_cold_and_its_batches_hot(imported):
    (_, rows), _ = imported(NVBENCH)
    cold, dims = rows["axpy/nvbench.axpy axpy/T=F32/N=1048576 cold t1"]
    hot, _ = rows["axpy/nvbench.axpy axpy/T=F32/N=1048576 hot t1"]
    assert (cold.time_s_mean, hot.time_s_mean, cold.samples, hot.samples) == (1.25e-5, 1.1e-5, 812, 2048)
    assert (cold.time_s_std, cold.gbyte_per_s, cold.clock_mhz) == pytest.approx((1.25e-5 * 0.0125, 1500.0, 1755.0))
    assert (cold.device, cold.versions, hot.gbyte_per_s) == ("cuda", "nvbench 0.1.0", None)
    assert dims == {"T": "F32", "N": 1048576}


def test_nvbench_median_is_empty_where_only_the_mean_is_known(imported):
    (_, rows), _ = imported(NVBENCH)
    cold, _ = rows["axpy/nvbench.axpy axpy/T=F32/N=1048576 cold t1"]
    ours, _ = rows["gemm/nvbench.my_gemm gemm/m64n64k64/f32/NN cold t1"]
    assert (cold.time_s_median, cold.time_s_ci95_low) == (None, None)
    assert ours.time_s_median == 4.9e-6
    assert ours.gflop_per_s == pytest.approx(2 * 64**3 / 4.9e-6 * 1e-9)


def test_nvbench_noise_that_is_not_finite_is_unknown(imported):
    _, (_, rows) = imported(NVBENCH)
    ((r, _),) = rows.values()
    assert r.time_s_std is None


def test_nvbench_states_that_were_skipped_keep_their_reason(imported):
    (_, rows), _ = imported(NVBENCH)
    skipped, _ = rows["axpy/nvbench.axpy axpy/T=F64/N=1048576 cold t1"]
    failed, _ = rows["axpy/nvbench.axpy axpy/T=F32/N=64 cold t1"]
    assert (skipped.status, skipped.reason) == ("unsupported", "Skipping: not for F64.")
    assert (failed.status, failed.reason) == ("failed", "Unexpected error: too small")
    assert skipped.time_s_mean is None


def test_an_nvbench_state_without_a_time_has_failed(imported, edited):
    (_, rows), _ = imported(edited(NVBENCH, "benchmarks.0.states.0.summaries", None))
    r, _ = rows["axpy/nvbench.axpy axpy/T=F32/N=1048576 cold t1"]
    assert (r.status, r.reason) == ("failed", "the file has no time for it")


def test_nvbench_samples_beside_the_file_give_a_median_and_an_interval(tmp_path, imported):
    root = json.loads(NVBENCH.read_text())
    data = [{"name": "filename", "value": "elsewhere/out.json-bin/0.bin"}, {"name": "size", "value": "9"}]
    state = root["benchmarks"][0]["states"][0]
    state["summaries"].append({"tag": "nv/json/bin:nv/cold/sample_times", "name": "file", "data": data})
    (tmp_path / "out.json").write_text(json.dumps(root))
    (tmp_path / "out.json-bin").mkdir()
    samples = array.array("f", [1e-5 + i * 1e-7 for i in range(9)])
    (tmp_path / "out.json-bin" / "0.bin").write_bytes(samples.tobytes())
    (_, rows), _ = imported(tmp_path / "out.json")
    cold, _ = rows["axpy/nvbench.axpy axpy/T=F32/N=1048576 cold t1"]
    assert (cold.samples, cold.time_s_median, cold.interval) == (9, samples[4], "within-process")
