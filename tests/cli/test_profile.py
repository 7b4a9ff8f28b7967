"""The command `kernelmark profile`: its page, its JSON, and one line for bad input."""

import json
from dataclasses import replace

import pytest

from kernelmark.bench.emulator.build import missing_tool
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.tune.profile import sass
from support.pages import valid

PRODUCT = "gemm/m256n512k64/f32/NN"


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
def test_page_and_json_hold_the_counts(called):
    words = ("profile", "transpose/cuda.tiled", "transpose/m33n70/f32/out")
    printed = called(*words).printed
    assert "all of 6 blocks ran" in printed
    found = valid(called(*words, "--json").printed, "profile")
    assert found["counts"]["launches"][0]["blocks"] == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gemm/cublas.sgemm", PRODUCT), "gemm/cublas.sgemm: comes without a .cu file"),
        (("gemm/numpy.matmul", PRODUCT), "gemm/numpy.matmul: comes without a .cu file"),
        (("gemm/cuda.none", PRODUCT), "kernel 'gemm/cuda.none' is unknown"),
        (("gemm/cuda.async", PRODUCT, "--arch", "sm_1"), "arch 'sm_1': its limits are not known"),
        (("gemm/cuda.async", PRODUCT, "--on", "h300"), "device 'h300' is unknown"),
        (("gemm/cuda.async", PRODUCT, "--on", "a100"), "device a100: is sm_80, not sm_90a; give an --arch of that"),
        (("gemm/cuda.wgmma", PRODUCT, "--arch", "sm_80"), "--arch sm_80: gemm/cuda.wgmma is for sm_90a"),
        (("gemm/cuda.async", "gemm/m256n512k64/f16/NN"), "gemm/cuda.async has no f16 path"),
        (("gemm/cuda.async", "transpose/m33n70/f32/out"), "gemm/cuda.async is a kernel of gemm"),
    ],
)
def test_bad_input_is_one_line(called, words, said):
    assert said in called("profile", *words).refusal


def test_a_kernel_without_a_twin_is_refused_with_its_reason(called, registry):
    kernel = registry.kernels["gemm/cuda.async"]
    registry.kernels[kernel.id] = replace(kernel, emulated="mma.sp has no twin")
    done = called("profile", kernel.id, PRODUCT)
    assert done.status == 2
    assert "cannot be emulated, so it cannot be counted: mma.sp has no twin" in done.err


def test_without_a_compiler_the_complaint_names_the_package(called, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-g++")
    done = called("profile", "gemm/cuda.async", PRODUCT)
    assert done.status == 2
    assert "install it with" in done.err


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
def test_machine_code_and_bound_follow_the_counts(called):
    words = ("profile", "gemm/cuda.tiled", "gemm/m64n64k640/f32/NN", "--on", "h200")
    printed = called(*words).printed
    assert "The counts agree with the machine code over" in printed
    assert "least time on H200 SXM" in printed
    machine = json.loads(called(*words, "--json").out)["machine"]
    assert machine["bound"]["device"] == "H200 SXM"
    main = machine["sass"]["functions"][0]
    assert main["loop"]["mix"]["FFMA"] > 0
    assert main["clumped"] is None
    assert f"about {main['cover']:,} issue cycles from an LDG to its first use" in printed
    assert "copies clumped" not in printed


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
def test_without_nvdisasm_the_counts_stand_alone(called, monkeypatch):
    def gone():
        raise Unsupported("no nvdisasm")

    monkeypatch.setattr(sass, "disassembler", gone)
    printed = called("profile", "transpose/cuda.tiled", "transpose/m33n70/f32/out").printed
    assert "No machine code: no nvdisasm" in printed
