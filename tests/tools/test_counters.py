"""Counters and checks, from stand-ins that print in the format of Nsight Compute 2025.3 and compute-sanitizer.

The figures of tests/data/ncu_*.txt and sanitizer_*.txt are made up.
"""

from pathlib import Path

import msgspec
import pytest

import counters
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from support.emulated import host_compiler

DATA = Path(__file__).parents[1] / "data"
TILED = ("gemm/cuda.tiled", "gemm/m256n256k256/f32/NN")
WINOGRAD = ("conv/cuda.winograd", "conv/n4c64h28w28k64r3s3pad1/f32/nchw/fprop")
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
TMA = "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"
DENIED = (
    "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target"
    " device 0"
)
NOT_LOADED = "Failed to initialize the profiler: LibraryNotLoaded"
RACE = "Error: Race reported between Write access at sgemm_tiled+0x2a0 in tiled.cu:31"
UNSUPPORTED = (
    'Error: Device not supported. Please refer to the "Supported Devices" section of the sanitizer documentation'
)


def text(name):
    return (DATA / f"{name}.txt").read_text()


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(command, script):
        (tmp_path / command).write_text(f"#!/bin/sh\necho $* >>{tmp_path}/calls\n{script}\n")
        (tmp_path / command).chmod(0o755)
        return tmp_path / "calls"

    return make


def cat(*names, status=0):
    return "\n".join(f"cat {DATA}/{name}.txt" for name in names) + f"\nexit {status}"


def test_chosen_kernels_are_hand_written_and_take_their_problems(registry):
    for name, problem in counters.CHOSEN:
        kernel, parsed = registry.named(name), registry.problem(problem)
        assert isinstance(kernel, CudaKernel)
        assert kernel.op == parsed.op
        assert kernel.refuses(parsed, H100) is None


def test_numbers_lose_their_separators_and_prefixes_and_an_absent_metric_is_none():
    ((function, values),) = counters.parsed(text("ncu_tiled"))
    assert function.startswith("void sgemm_tiled<(int)32, (Op)0, (Op)0>(")
    assert (values[FFMA], values[TMA]) == (16_777_216, None)
    assert set(values) == {*counters.METRICS, "device__attribute_warp_size"}
    lines = '"Kernel Name","a__b.sum"\n"","Ksector"\n"f","1.5"\n'
    assert counters.parsed(lines) == [("f", {"a__b.sum": 1500})]
    assert counters.parsed(text("ncu_refused")) == []


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (text("ncu_refused"), DENIED),
        (f"==ERROR== {NOT_LOADED}\n", NOT_LOADED),
        ("Traceback\nOSError: gone\n==ERROR== The application returned an error code (1).\n", "OSError: gone"),
        ("==PROF== Connected to process 1 (p)\n==WARNING== No kernels were profiled.\n", "no kernel was profiled"),
    ],
)
def test_a_refusal_is_one_line(printed, reason):
    assert counters.refusal(printed) == reason


def test_launches_of_one_call_are_summed(stand_in, tmp_path):
    stand_in("ncu", cat("ncu_winograd"))
    (row,) = counters.counters(now() + 60, tmp_path, [WINOGRAD])
    assert (row.reason, len(row.functions)) == ("", 2)
    assert row.values["smsp__inst_executed.sum"] == 201_824 + 2_604_800
    assert (row.device.name, row.device.limits) == ("NVIDIA H200", H100)
    assert set(row.values) == set(counters.METRICS), "attributes of the device are not kept"
    assert msgspec.json.decode((tmp_path / "counters.json").read_bytes(), type=list[counters.Row]) == [row]


def test_a_profiler_that_refuses_is_called_once_and_each_pair_has_a_line(stand_in, tmp_path):
    calls = stand_in("ncu", cat("ncu_refused", status=1))
    rows = counters.counters(now() + 60, tmp_path)
    assert {row.reason for row in rows} == {DENIED}
    assert len(calls.read_text().splitlines()) == 1
    assert f"- gemm/cuda.naive on gemm/m256n256k256/f32/NN: not measured: {DENIED}\n" in counters.table(rows)


def test_a_kernel_that_fails_loses_only_its_own_row(stand_in, tmp_path):
    stand_in("ncu", f"case $* in *cuda.tiled*) {cat('ncu_tiled')};; esac\necho gone; exit 1")
    rows = counters.counters(now() + 60, tmp_path, [WINOGRAD, TILED])
    assert [row.reason for row in rows] == ["gone", ""]


def test_a_metric_that_ncu_lacks_is_left_out_of_later_calls(stand_in, tmp_path):
    unknown = f"case $* in *{TMA}*) echo '==ERROR== Failed to find metric {TMA}'; exit 1;; esac\n"
    calls = stand_in("ncu", unknown + cat("ncu_tiled"))
    rows = counters.counters(now() + 60, tmp_path, [TILED, TILED])
    assert [row.reason for row in rows] == ["", ""]
    assert [TMA in line for line in calls.read_text().splitlines()] == [True, False, False]


def test_without_ncu_and_after_the_deadline_there_are_reasons(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [row.reason for row in counters.counters(now() + 60, tmp_path, [TILED])] == ["ncu is not on the PATH"]
    (tmp_path / "ncu").touch(0o755)
    assert [row.reason for row in counters.counters(now(), tmp_path, [TILED])] == ["the deadline came first"]


def test_a_profiler_that_hangs_is_ended_at_the_deadline(stand_in, tmp_path):
    stand_in("ncu", "sleep 100")
    (row,) = counters.counters(now() + 2, tmp_path, [TILED])
    assert row.reason.startswith("ended after ")


def test_a_figure_adds_metrics_and_takes_the_first_of_several_names_that_is_not_0():
    gmma, hmma = counters.FIGURES["tensor instructions"].metrics[0]
    (loaded,), (boxes,) = counters.FIGURES["sectors read"].metrics
    row = counters.Row(*TILED, "", values={gmma: 0, hmma: 5, loaded: 1, boxes: 3, FFMA: None})
    figures = ("tensor instructions", "sectors read", "FFMA, lanes")
    assert [row.measured(counters.FIGURES[name]) for name in figures] == [5, 4, None]
    # The metric is also above 0 for some kernels without tensor instructions, which have no such line.
    shown = [list(counters._cells(row, {"tensor instructions": counted})) for counted in (0, 5)]
    assert ["tensor instructions" in [figure for _, _, figure, *_ in cells] for cells in shown] == [False, True]


def test_the_table_compares_the_counters_with_the_profile(stand_in, tmp_path):
    host_compiler()
    stand_in("ncu", cat("ncu_tiled"))
    page = counters.table(counters.counters(now() + 60, tmp_path, [TILED]), "run 7")
    lines = (line.strip("|").split("|") for line in page.splitlines() if "cuda.tiled" in line)
    counts = {figure.strip(): [cell.strip() for cell in cells] for _, _, figure, *cells in lines}
    assert counts["FFMA, lanes"] == ["16,777,216", "16,777,216", "1.000"]
    assert counts["sectors read"] == ["131,072", "131,072", "1.000"]
    assert counts["bank conflicts"] == ["4,096", "0", ""]
    assert "tensor instructions" not in counts
    assert "Run run 7; " in page
    assert ", NVIDIA H200, CUDA driver 13.0" in page
    assert f"ncu gave no number of `{TMA}`." in page


MMA = {"sectors read": 262_144, "shared wavefronts": 159_744, "bank conflicts": 8192}
#: Counts of Nsight Compute on an H200 (reports/nvidia-h200/counters.json) for kernels that have not changed since, with
#: their default tiles at that time; and the number of tensor instructions that a product's tile needs.
COUNTED = (
    ("gemm/cuda.async@BM=128,BN=256", {"sectors read": 196_608}),  # since then, a warp leaves out its last fetch
    ("gemm/cuda.mma", {**MMA, "tensor instructions": 65_536}),
    ("conv/cuda.implicit", {"sectors read": 794_112, "sectors written": 150_528, "shared wavefronts": 911_008}),
    ("gemm/cuda.wgmma", {"tensor instructions": 4096}),
)


@pytest.mark.parametrize(("kernel", "figures"), COUNTED)
def test_the_profile_agrees_with_the_counts_of_a_gpu_and_the_needs_of_a_tile(kernel, figures):
    host_compiler()
    problem = dict(counters.CHOSEN)[kernel.partition("@")[0]]
    counted = counters.profiled(counters.Row(kernel, problem, ""))
    assert {name: counted[name] for name in figures} == figures


@pytest.mark.parametrize(
    ("printed", "status", "errors", "reason"),
    [
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", 0, 0, ""),
        (text("sanitizer_memcheck"), 0, 2, "Invalid __global__ write of size 4 bytes"),
        (text("sanitizer_racecheck"), 0, 1, RACE),
        (text("sanitizer_refused"), 1, None, UNSUPPORTED),
        ("OSError: gone\n========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", 1, None, "OSError: gone"),
        ("compute-sanitizer is not on the PATH", 127, None, "compute-sanitizer is not on the PATH"),
    ],
)
def test_a_summary_is_read_and_a_check_that_did_not_run_has_a_reason(printed, status, errors, reason):
    check = counters.checked(TILED, "memcheck", status, printed)
    assert (check.errors, check.reason) == (errors, reason)


def test_each_kernel_gets_both_checks_on_its_smallest_and_its_largest_ragged_problem(stand_in):
    calls = stand_in("compute-sanitizer", "echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)'")
    checks = counters.sanitizer(["gemm/cuda.tiled", "copy/cuda.vectorised"], now() + 60)
    assert [check.line.partition(" on ")[0] for check in checks] == [
        *("memcheck of gemm/cuda.tiled", "racecheck of gemm/cuda.tiled"),
        *("memcheck of copy/cuda.vectorised", "racecheck of copy/cuda.vectorised"),
    ]
    assert [check.errors for check in checks] == [0, 0, 0, 0]
    assert "--tool racecheck" in calls.read_text()
    assert calls.read_text().endswith("--launch copy/cuda.vectorised copy/m1n1/f16 copy/m67n37/f64\n")


def test_a_sanitizer_that_refuses_the_device_is_called_once(stand_in):
    calls = stand_in("compute-sanitizer", cat("sanitizer_refused", status=1))
    lines = [check.line for check in counters.sanitizer(["gemm/cuda.tiled"], now() + 60)]
    assert lines[1].endswith(f": not checked: {UNSUPPORTED}")
    assert len(calls.read_text().splitlines()) == 1


def test_the_script_exits_with_1_after_errors_and_makes_a_table_again_from_its_counters(stand_in, capsys, tmp_path):
    stand_in("compute-sanitizer", cat("sanitizer_memcheck"))
    assert counters.main(["--sanitizer", "gemm/cuda.tiled"]) == 1
    assert ": 2 errors: Invalid __global__ write of size 4 bytes\n" in capsys.readouterr().out
    stand_in("ncu", cat("ncu_refused", status=1))
    assert counters.main(["--out", str(tmp_path)]) == 0
    table = (tmp_path / "counters.md").read_text()
    (tmp_path / "counters.md").unlink()
    assert counters.main(["--table", str(tmp_path)]) == 0
    assert (tmp_path / "counters.md").read_text() == table


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("gemm/cuda.tilde", "kernel 'gemm/cuda.tilde' is unknown"),
        ("gemm/numpy.matmul", "gemm/numpy.matmul: has no .cu file"),
    ],
)
def test_a_kernel_that_cannot_be_checked_is_refused_in_a_line(capsys, kernel, reason):
    assert counters.main(["--sanitizer", kernel]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"counters.py: {reason}")


def test_ncu_profiles_between_start_and_stop_and_leaves_the_clocks_free():
    words = counters.ncu_command(TILED, ["a.sum", "b.sum"])
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert words[words.index("--metrics") + 1] == "a.sum,b.sum"
