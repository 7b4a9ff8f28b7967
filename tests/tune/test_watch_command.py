"""The command `kernelmark watch` in a process of its own."""

import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kernelmark.bench.record.store import Store
from support.tuning import BROKEN, PROBLEM, SOURCE, STAGED, UNGUARDED

ROOT = Path(__file__).resolve().parents[2]
TILED = str(ROOT / "cuda/gemm/tiled.cu")
WGMMA = str(ROOT / "cuda/gemm/wgmma.cu")
SQUARE = "gemm/m64n64k64/f32/NT"
#: The driver then finds none, and the emulator judges.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}

pytestmark = pytest.mark.usefixtures("cuda_compiler")


@contextmanager
def watching(folder, *words):
    """The command at work, its output line by line."""
    script = str(Path(sys.executable).with_name("kernelmark"))
    command = [sys.executable, script, "watch", *words]
    env = {**os.environ, **NO_GPU, "XDG_DATA_HOME": str(folder / "data")}
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process, end):
    """What is printed up to a line that begins so."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(end):
            return "".join(lines)
    raise AssertionError("".join(lines))


def test_a_kernel_of_the_tree_is_compiled_and_emulated_once(kernelmark):
    done = kernelmark("watch", str(ROOT / "cuda/gemm/tiled.cu"), "gemm/m512n512k512/f32/NT", "--once", **NO_GPU)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sgemm_tiled<32, Op::N, Op::T>" in done.stdout
    assert "PASS: no races or memory errors (11 problems x 3 schedules, 2 tiles)\n  PASS  T=32  11 prob" in done.stdout
    assert "\033" not in done.stdout


def test_each_save_is_compiled_and_ctrl_c_ends_with_130(folder):
    with watching(folder, "turned.cu", PROBLEM, "--plugin", "turned.py") as process:
        assert "PASS: no races or memory errors" in until(process, "waiting")
        (folder / "turned.cu").write_text(STAGED)
        assert "1024 (was 0)" in until(process, "waiting")
        (folder / "turned.cu").write_text(BROKEN)
        said = until(process, "waiting")
        assert "turned.cu does not compile for sm_90a" in said
        assert 'turned.cu(5): error: identifier "c" is undefined' in said
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().strip().splitlines() == [
            "3 versions tried, 2 passed",
            "last that passed: version 2",
            "last: version 3, FAIL, does not compile",
        ]
        assert process.wait(timeout=20) == 130
    with closing(Store(folder / "data" / "kernelmark" / "results.db", create=False)) as store:
        found = store.versions("transpose/cuda.turned", PROBLEM)
    kept = [(one.version.verdict, one.version.right, one.version.time_s, bool(one.version.registers)) for one in found]
    assert kept == [("PASS", True, None, True)] * 2 + [("FAIL, does not compile", False, None, False)]
    assert [one.sources["turned.cu"].decode() for one in found] == [SOURCE, STAGED, BROKEN]
    assert "common.cuh" in found[0].sources


def test_a_version_that_is_wrong_makes_the_exit_status_1(folder, kernelmark):
    (folder / "turned.cu").write_text(UNGUARDED)
    done = kernelmark("watch", "turned.cu", PROBLEM, "--plugin", "turned.py", "--once", **NO_GPU)
    assert (done.returncode, done.stderr) == (1, "")
    assert "turned.cu:5: out-of-bounds" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("absent.cu", SQUARE), "File 'absent.cu' does not exist"),
        (("turned.cu", PROBLEM), "turned.cu: is the source of no kernel; --plugin names the file"),
        ((TILED, "gemm/m5n5k5/f16/NT"), "gemm/cuda.tiled has no f16 path; it has f32"),
        ((TILED, PROBLEM), "is no problem of gemm, which gemm/cuda.tiled computes"),
        ((TILED, "gemm/m5"), "gemm/m5: sizes are 'm5', expected"),
        ((TILED, SQUARE, "--kernel", "gemm/cuda.naive"), "expected one of gemm/cuda.tiled"),
        ((TILED, SQUARE, "--against", "none"), "--against 'none': matches no GPU kernel"),
        ((TILED, SQUARE, "--arch", "sm_1"), "arch 'sm_1': its limits are not known"),
        ((WGMMA, "gemm/m64n64k64/f16/NT", "--arch", "sm_80"), "--arch sm_80: gemm/cuda.wgmma is for sm_90a"),
    ],
)
def test_bad_input_is_one_line(folder, refused, words, said):
    assert said in refused("watch", *words, "--once")


@pytest.mark.gpu
def test_on_a_gpu_the_version_is_timed_beside_the_vendors_call(kernelmark):
    done = kernelmark("watch", TILED, "gemm/m512n512k512/f32/NT", "--once", "--against", "gemm/cublas.sgemm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gemm/cublas.sgemm" in done.stdout.partition("this version against it")[2]
