"""Suites from logs: the problems of each library's lines, and the lines that are reported as not understood."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.suites import load_suite
from kernelmark.bench.record.foreign.logs import read_log
from support.tools import needed

DATA = Path(__file__).parents[1] / "data" / "logs"
CONV = "conv/n2c8h14w14k16r3s3"
OF_ONEDNN = {
    f"{CONV}pad1/f32/nchw/fprop": 3,
    f"{CONV}pad1x0stride2/f32/nchw/fprop": 1,
    f"{CONV}pad1/f32/nhwc/fprop": 1,
    "conv/n2c8h14w14k8r3s3/f32/nchw/fprop/g2": 1,
    f"{CONV}/f32/nchw/fprop/dil2": 1,
    "gemm/m64n32k48/bf16/NN": 1,
    "gemm/m16n8k24/bf16/NN/batch3": 1,
    "gemm/m64n32k48/bf16/NT": 1,
    "gemm/m64n32k48/bf16/NT/beta1": 1,
    "conv/n2c4h16w16k8r3s3/f32/nchw/dgrad": 1,
    "conv/n2c8h1w20k4r1s3/f32/nchw/fprop": 1,
    f"{CONV}pad1/f32/nchw/dgrad": 1,
    f"{CONV}pad1/f32/nchw/wgrad": 1,
}
#: For each log in DATA, its problems and its other records. PyTorch 2.13 with oneDNN 3.12 wrote the log `onednn`:
#: products, convolutions with padding, strides, dilation and groups, gradients.
LOGS = {
    "onednn": (OF_ONEDNN, {"oneDNN information": 7, "oneDNN reorder": 2}),
    "cublas": ({"gemm/m1024n2048k26752/f32/NT/lda+3": 1}, {"calls of cublasSetStream_v2": 1}),
    "cublaslt": (
        {"gemm/m64n32k16/f16/NN": 1, "gemm/m32n2048k1024/e4m3.bf16/NT": 1},
        {"calls of cublasLtMatmulDescCreate": 1},
    ),
    "cudnn": ({"conv/n32c896h1w832k1792r1s19pad0x9stride1x2/f32/nchw/fprop": 1}, {"calls of cudnnBackendExecute": 1}),
    "rocm": (
        {
            "gemm/m256n128k64/f32/TN": 1,
            "gemm/m2048n17408k5120/f16.f32/NT": 1,
            "gemm/m384n3072k1024/f32/NN/beta1/batch64": 1,
            "gemm/m512n1024k1024/f16/NN/beta1": 1,
        },
        {"calls of trsm": 1},
    ),
    "cutlass": (
        {
            "gemm/m256n512k64/f32/TN": 1,
            "gemm/m512n256k64/f32/NT": 1,
            "conv/n8c128h224w224k128r3s3pad1/f32/nhwc/fprop": 1,
        },
        {"other lines": 1, "CUTLASS spgemm": 1},
    ),
    "older": (
        {
            "conv/n1c3h224w224k64r7s7pad3stride2/f32/nhwc/fprop": 1,
            "gemm/m16n1000k4096/f32/NT": 1,
            "conv/n1c3h8w8k6r3s3pad0-1x0-1stride2/f32/nchw/fprop": 1,
        },
        {"convolutions of 3 dimensions": 1},
    ),
    "odd": ({}, {"other lines": 1, "records of another form: onednn_verbose": 1, "storage type c": 1, None: 1}),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_gives_its_problems_and_the_reasons_for_skipped_records(registry, name):
    problems, skipped = LOGS[name]
    log = read_log((DATA / f"{name}.log").read_text().splitlines(), registry)
    assert (log.problems, sum(log.skipped.values())) == (problems, sum(skipped.values()))
    assert {reason: n for reason, n in skipped.items() if reason} == {
        reason: n for reason, n in log.skipped.items() if reason in skipped or None not in skipped
    }


def test_the_suite_of_a_log_has_its_problems_with_their_counts(called, registry, tmp_path):
    (tmp_path / "all.log").write_text("".join((DATA / f"{name}.log").read_text() for name in LOGS))
    done = called("suite", "--from", str(tmp_path / "all.log"), "-o", str(tmp_path / "own.toml"))
    assert done.status == 0
    named = "oneDNN information (7), oneDNN reorder (2), other lines (2), 9 other reasons (9)"
    assert done.err.endswith(f" calls; not understood: {named}\n")
    assert len(done.err.splitlines()) == 1
    counts = Counter()
    for problems, _ in LOGS.values():
        counts.update(problems)
    assert f"{len(counts)} problems of {counts.total()} calls" in done.err
    entries = list(load_suite(tmp_path / "own.toml", registry).entries())
    assert {entry.problem.id: entry.count for entry in entries} == counts
    assert {entry.part for entry in entries if "grad" in entry.problem.id} == {"backward"}
    (tmp_path / "none.log").write_text("hello\n")
    none = called("suite", "--from", str(tmp_path / "none.log")).refusal
    assert "contains no call of a known library (1 line not understood); `" in none


CALLS = """
import torch
import torch.nn.functional as F

with torch.no_grad():
    F.conv2d(torch.randn(2, 8, 14, 14), torch.randn(16, 8, 3, 3), padding=1, stride=2)
    torch.randn(64, 48).bfloat16() @ torch.randn(48, 32).bfloat16()
"""


def test_lines_of_the_installed_pytorch_are_understood(registry):
    needed(module_missing("torch"))
    environment = {**os.environ, "ONEDNN_VERBOSE": "1"}
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, env=environment, check=True)
    if "exec" not in done.stdout:
        pytest.skip("this build of PyTorch calls no oneDNN")
    log = read_log(done.stdout.splitlines(), registry)
    assert log.problems.get(f"{CONV}pad1stride2/f32/nchw/fprop") == 1
    assert all(reason.startswith("oneDNN ") for reason in log.skipped)
