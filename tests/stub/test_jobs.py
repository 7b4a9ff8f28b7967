"""Kernels end to end on the stub driver, with the project's launcher, clock and verification and the real cuda-core."""

import re

import pytest

from stub.library import on_stub
from stub.recording import recorded_in, unexecuted

PLAIN = ("gemm/cuda.tiled", "gemm/m33n31k17/f32/NT")
#: Kernels and problems, each with a text that the log must have about one of its launches.
VERIFIED = {
    "plain": (*PLAIN, "grid 1 2 1, block 32 32 1"),
    "dynamic shared memory": ("gemm/cuda.async@BM=128,BN=256", "gemm/m33n31k17/f32/NT", "shared 50176"),
    "cooperative": ("transpose/cuda.c2r_fused", "transpose/m17n12/f32/in", "cooperative 1"),
    "tensor maps": ("transpose/cuda.tma", "transpose/m64n32/f32/out", "shared 99328"),
    "maps of images": ("conv/cuda.implicit_wgmma", "conv/n2c8h5w6k24r3s3pad1/f16/nhwc/fprop", "shared 164864"),
    "cluster and tensor maps": ("gemm/cuda.wgmma_tf32@CLUSTER=2", "gemm/m40n48k64/f32/NT", "cluster 2 1 1"),
    "groups of rows": ("gemm/cuda.wgmma_grouped", "gemm/m40n48k64/bf16/NT/groups3-skewed", "shared 164864"),
}
#: A kernel with two launches, and the symbols of their functions.
ALONE = ("conv/cuda.winograd", "conv/n2c8h6w6k8r3s3pad1/f32/nchw/fprop")
ALONE_LAUNCHES = (
    "_Z16winograd_filtersI2F2L6Layout0ELb0EEvPKfPfjjj",
    "_Z14winograd_fusedILi32EL6Layout0EEvPKfS2_Pfjjjjjjjiijj",
)
PERSISTS = ("copy/selftest.persists", "copy/m33n16/f32")
MODES = ("hot", "cold", "graph")
#: The self-test's ways of launching in which CuPy loads no kernel.
WAYS = ("cuda-core", "graph")


@pytest.fixture(scope="module")
def runs(tools, folder):
    verified = {name: ("stub.jobs:verified", *case[:2]) for name, case in VERIFIED.items()}
    timed = {mode: ("stub.jobs:timed", *PLAIN, mode) for mode in MODES}
    ways = {f"way {name}": ("stub.jobs:way", name) for name in WAYS}
    others = {
        "refused map": ("stub.jobs:refused_map",),
        "persisting": ("stub.jobs:timed", *PERSISTS, "cold", "cuda-core", 20_000_000, 0),
        "not run": ("stub.jobs:not_run", *PLAIN),
        "identity": ("kernelmark.bench.measure.cuda:gpu_uuids",),
        "synchronising": ("stub.jobs:synchronising_call",),
        "pinned memory": ("stub.jobs:transferred", "transfer/cuda.pinned", "transfer/n33/f32/h2d"),
        "parameters": ("stub.second_launcher:parameters", "cuda-core"),
        "alone": ("stub.jobs:launched_alone", *ALONE),
        "managed memory": ("stub.jobs:transferred", "transfer/cuda.managed", "transfer/n33/f32/h2d"),
    }
    first = {"missing": ("kernelmark.bench.measure.present:cuda_missing",)}
    last = {"compiled": ("stub.jobs:compiled", str(folder))}
    return on_stub(first | verified | ways | others | timed | last, folder, **recorded_in(folder))


@pytest.mark.parametrize("name", VERIFIED)
def test_a_kernel_verifies(runs, name):
    assert runs[name].outcome == ("ok", "", [])
    assert runs[name].value["ran"] >= 1
    assert any(line.startswith("cuLaunchKernelEx ") and VERIFIED[name][2] in line for line in runs[name].log)


def test_a_kernel_gets_the_values_of_its_parameters(runs):
    assert runs["parameters"].value == [2**40 + 1, -2, [7, 2**40], 1.5, -3]


def test_a_kernel_with_much_shared_memory_is_loaded_once_and_asks_for_the_whole_carve_out(runs):
    lines = [line for line in runs["dynamic shared memory"].log if line.startswith(("cuLibraryLoad", "cuKernelSet"))]
    loaded, *attributes = map(str.split, lines)
    assert loaded[0] == "cuLibraryLoadData"
    assert [(words[1], words[-1]) for words in attributes] == [("8", "50176"), ("9", "100")]
    assert not any(line.startswith("cuLibraryLoad") for mode in MODES for line in runs[mode].log)


def test_a_kernel_that_is_launched_but_does_not_run_is_wrong(runs):
    assert runs["not run"].value["status"] == "wrong"


FUSED = ("c2r_fused_columns", "c2r_fused_rows", "c2r_stash")
#: The launches that a row reports: the beginning of the kernel's name, and the grid and block as in the log.
LAUNCHED = {
    "plain": r"sgemm_tiled<[^;]+<<<1,2,1 x 32,32,1>>>",
    "cooperative": "; ".join(rf"{name}<[^;]+<<<\d+,1,1 x 32,1,1>>>" for name in FUSED),
    "cluster and tensor maps": r"gemm_wgmma_persistent<[^;]+<<<\d+,1,1 x \d+,1,1>>>",
    "pinned memory": "",
}


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_row_reports_the_kernels_that_its_call_launched(runs, name):
    assert re.fullmatch(LAUNCHED[name], runs[name].value["launched"])


@pytest.mark.parametrize("mode", MODES)
def test_every_sample_is_the_length_of_the_launch_that_the_row_reports(runs, mode):
    row = runs[mode].value
    assert runs[mode].outcome == ("ok", "", [])
    assert (row["disturbed"], set(row["samples"])) == ("", {0.02})
    assert row["launched"] == runs["plain"].value["launched"]


@pytest.mark.parametrize(("mode", "call"), [("hot", "cuLaunchKernelEx"), ("graph", "cuGraphLaunch")])
def test_timed_work_is_queued_while_the_stream_is_held(runs, mode, call):
    calls = [line.split()[0] for line in runs[mode].log]
    last = len(calls) - 1 - calls[::-1].index("cuStreamWaitValue32_v2")
    assert calls[last + 1 : last + 4] == ["cuEventRecord", call, "cuEventRecord"]


def test_a_call_that_synchronises_is_released_by_the_watchdog_and_timed_without_holding(runs):
    (violation,) = runs["synchronising"].violations
    assert violation == "cuStreamSynchronize was called while a stream was held"
    done = ["called", "restored", "called"]
    assert runs["synchronising"].value == {"held": False, "span": 0.004, "done": done}


@pytest.mark.parametrize("name", WAYS)
def test_the_self_test_confirms_that_events_cover_a_way_of_launching(runs, name):
    assert runs[f"way {name}"].value["holds"] is True


def test_a_map_that_the_driver_refuses_is_an_error_with_its_status(runs):
    refused = r"k: the driver refuses to encode TensorMap\(operand='a', .*\) over \(32, 32\): CUDA_ERROR_INVALID_VALUE"
    assert re.fullmatch(refused, runs["refused map"].value)


def test_no_line_persists_in_l2_when_a_sample_is_taken(runs):
    assert (runs["persisting"].value["status"], set(runs["persisting"].value["samples"])) == ("ok", {0.02})
    calls = [line for line in runs["persisting"].log if line.startswith(("cuStreamSetAttribute", "cuCtxSetLimit"))]
    place = max(i for i, line in enumerate(calls) if line.startswith("cuStreamSetAttribute"))
    assert calls[place - 1] == f"cuCtxSetLimit 6 {4 * 33 * 16}"
    assert set(calls[place + 1 :]) == {"cuCtxSetLimit 6 0"}


def test_a_profiler_sees_one_call_of_the_kernel_between_start_and_stop(runs):
    log = [line for line in runs["alone"].log if "cuProfiler" in line or line.startswith("cuLaunchKernelEx ")]
    assert [line.split(" on ")[0] for line in log] == [
        "first call of cuProfilerStart",
        *(f"cuLaunchKernelEx {symbol}" for symbol in ALONE_LAUNCHES),
        "first call of cuProfilerStop",
    ]
    assert '"name":"' in runs["alone"].value
    # Each operand fills its allocation, so that the tool detects an access beyond it.
    assert any(line.startswith(f"cuMemAlloc_v2 of {4 * 2 * 8 * 6 * 6} bytes") for line in runs["alone"].log)


def test_only_a_refused_map_and_a_synchronising_call_break_rules(runs):
    broken = {name for name, run in runs.items() if run.violations}
    assert broken == {"refused map", "synchronising"}


def test_every_function_of_cuda_core_and_its_bindings_that_we_call_is_executed(runs, folder):
    assert unexecuted(folder, ("cuda.core.", "cuda.bindings.", "libcuda.")) == []
