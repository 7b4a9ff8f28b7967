"""Kernels end to end on the stub driver with the second launcher, the real PyCUDA, which keeps the driver's rules."""

import numpy as np
import pytest

from stub.library import environment, on_stub
from stub.recording import recorded_in, unexecuted

PLAIN = ("gemm/cuda.naive", "gemm/m33n31k17/f32/NT")
#: Kernels and problems, each with a text that the log must have about one of its launches.
VERIFIED = {
    "naive": (*PLAIN, "grid 2 4 1, block 32 8 1"),
    "shared memory that is asked for": ("gemm/cuda.async@BM=128,BN=256", "gemm/m33n31k17/f32/NT", "shared 50176"),
    "alpha and beta": ("gemm/cuda.naive", "gemm/m33n31k17/f32/NT/alpha2/beta0.5", "grid 2 4 1"),
    "f16": ("gemm/cuda.mma", "gemm/m33n31k17/f16/NT", "shared 32768"),
    "in place, several launches": ("transpose/cuda.c2r", "transpose/m17n12/f32/in", "grid 12 1 1"),
}
REFUSED = {
    "cooperative kernels": ("transpose/cuda.c2r_fused", "transpose/m17n12/f32/in"),
    "tensor maps": ("transpose/cuda.tma", "transpose/m64n32/f32/out"),
    "clusters": ("gemm/cuda.wgmma_tf32@CLUSTER=2", "gemm/m40n48k64/f32/NT"),
}
#: The nanoseconds of a launch on the device and on the host; the samples, from the driver's float32 milliseconds.
LENGTH_NS, HOST_NS = 12_345_678, 3_000
FREE_S = float(np.float32(LENGTH_NS / 1e6)) * 1e-3
WITH_HOST_S = float(np.float32((LENGTH_NS + HOST_NS) / 1e6)) * 1e-3
#: A breach, its result, and a part of the only violation that it causes.
BREACHES = [
    ("too_few_parameters", "cuLaunchKernel failed: CUDA_ERROR_INVALID_VALUE", "packed parameters of 8"),
    (
        *("absent_function", "cuMemAllocPitch failed: CUDA_ERROR_NOT_SUPPORTED"),
        "cuMemAllocPitch_v2 was called, which the stub does not have",
    ),
]


@pytest.fixture(scope="module")
def runs(pycuda, folder):
    verified = {name: ("stub.jobs:verified", *case[:2], "pycuda") for name, case in VERIFIED.items()}
    refused = {name: ("stub.jobs:verified", *case, "pycuda") for name, case in REFUSED.items()}
    timed = {
        mode: ("stub.jobs:timed", *PLAIN, mode, "pycuda", LENGTH_NS, 0 if mode == "cold" else HOST_NS)
        for mode in ("hot", "cold", "graph")
    }
    others = {"way": ("stub.jobs:way", "PyCUDA"), "first launcher": ("stub.jobs:verified", *PLAIN, "cuda-core")}
    others["parameters"] = ("stub.second_launcher:parameters", "pycuda")
    others["refused stream"] = ("stub.second_launcher:refused_stream",)
    calls = {**verified, **refused, **others, **timed}
    return on_stub(calls, folder, packages=pycuda, **recorded_in(folder))


@pytest.fixture(scope="module")
def breaches(pycuda, tmp_path_factory):
    calls = {name: (f"stub.second_launcher:{name}",) for name, *_ in BREACHES}
    return on_stub(calls, tmp_path_factory.mktemp("stub"), packages=pycuda, KM_STUB_PATIENCE_MS="0")


@pytest.mark.parametrize("name", VERIFIED)
def test_a_kernel_verifies(runs, name):
    assert runs[name].outcome == ("ok", "", [])
    assert runs[name].value["ran"] >= 1
    assert any(line.startswith("cuLaunchKernel ") and VERIFIED[name][2] in line for line in runs[name].log)


@pytest.mark.parametrize("feature", REFUSED)
def test_a_kernel_that_pycuda_cannot_launch_is_refused_in_one_line(runs, feature):
    assert runs[feature].outcome == ("unsupported", f"PyCUDA cannot launch {feature}; use --launcher cuda-core", [])
    assert runs[feature].value["ran"] == 0


def test_a_kernel_gets_the_values_of_its_parameters(runs):
    assert runs["parameters"].value == [2**40 + 1, -2, [7, 2**40], 1.5, -3]


@pytest.mark.parametrize(("mode", "sample"), [("hot", WITH_HOST_S), ("cold", FREE_S), ("graph", WITH_HOST_S)])
def test_a_sample_includes_the_time_of_the_host(runs, mode, sample):
    assert runs[mode].outcome == ("ok", "", [])
    assert set(runs[mode].value["samples"]) == {sample}


def test_the_self_test_confirms_that_events_cover_launches_by_pycuda(runs):
    assert runs["way"].value["holds"] is True


def test_the_first_launcher_verifies_on_the_stream_of_the_second(runs):
    assert runs["first launcher"].outcome == ("ok", "", [])


def test_a_launch_is_refused_if_the_device_has_another_stream(runs):
    assert runs["refused stream"].value == "PyCUDA launches only on its stream"


def test_every_function_of_pycuda_that_we_call_is_executed(runs, folder):
    assert unexecuted(folder, ("pycuda.",)) == []


def test_no_rule_is_broken_and_every_handle_is_released(runs):
    assert {name: run.violations for name, run in runs.items() if run.violations} == {}


@pytest.mark.parametrize(("name", "value", "expected"), BREACHES)
def test_a_breach_is_found(breaches, name, value, expected):
    (violation,) = breaches[name].violations
    assert expected in violation
    assert breaches[name].value == value


def test_a_stream_that_the_driver_refuses_leaks_no_handle(pycuda, tmp_path):
    runs = on_stub({"refused": ("stub.second_launcher:refused_by_the_driver",)}, tmp_path, packages=pycuda)
    assert (runs["refused"].value, runs["end"].violations) == ("no stream", [])


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("run", "--mode", "hot", "--no-ceilings", "--max-time", "0.1"), " 1.00 us "),
        pytest.param(("verify",), "correct: gemm/cuda.naive", marks=pytest.mark.long),
    ],
)
def test_a_command_takes_the_second_launcher(pycuda, tmp_path, python_in, words, printed):
    kernel, problem = PLAIN
    variables = environment(pycuda, KM_STUB_LOG=str(tmp_path / "driver.log"), KM_STUB_EMULATES="1")
    command = ("-m", "kernelmark", *words, problem, "--kernels", kernel)
    done = python_in(tmp_path, *command, "--launcher", "pycuda", **variables)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    log = (tmp_path / "driver.log").read_text().splitlines()
    assert [line for line in log if line.startswith("violation")] == []
    assert any(line.startswith("cuLaunchKernel ") for line in log)
