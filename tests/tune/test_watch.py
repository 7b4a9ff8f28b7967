"""`kernelmark watch`: versions of a .cu, compiled, judged and compared as they are saved."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.cli.watch import _tile
from bench.plan.case import Budget, WorkerKey
from bench.plan.discovery import discover
from bench.plan.errors import UsageError
from bench.plan.limits import H100
from bench.run.pool import Workers
from bench.tune.watch.comparison import Comparison, job_of
from bench.tune.watch.contenders import counterparts, with_tile
from bench.tune.watch.session import Session
from bench.tune.watch.source import keep

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = "transpose/m61n47/f32/out"
TILED = str(ROOT / "cuda/gemm/tiled.cu")
WGMMA = str(ROOT / "cuda/gemm/wgmma.cu")
SQUARE = "gemm/m64n64k64/f32/NT"
SOURCE = """#include "common.cuh"

template <typename T, int H> __global__ void turned(const T *a, T *b, int m, int n) {
  const int i = blockIdx.y * H + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
  if (i < m && j < n) b[j * m + i] = a[i * n + j];
}
"""
STAGED = SOURCE.replace("  if (i", "  __shared__ T tile[H][32];\n  if (i").replace(
    "b[j * m + i] = a[i * n + j]",
    "{ tile[threadIdx.y][threadIdx.x] = a[i * n + j]; b[j * m + i] = tile[threadIdx.y][threadIdx.x]; }",
)
UNGUARDED = SOURCE.replace("if (i < m && j < n) ", "")
#: Lanes read what others write, without a barrier, in the tile that no run of the problem takes.
RACING = STAGED.replace(
    "= tile[threadIdx.y][threadIdx.x];", "= tile[threadIdx.y][H == 4 ? threadIdx.x ^ 1 : threadIdx.x];"
)
BROKEN = SOURCE.replace("b[j * m + i]", "c[j * m + i]")
#: The driver then finds none, and the emulator judges.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
PLUGIN = """from pathlib import Path

from kernelmark import KernelCall, cuda_kernel


@cuda_kernel(
    "transpose", source=str(Path(__file__).with_name("turned.cu")), entry="turned<bits::{dtype}, {H}>", dtypes=("f32",),
    places=("out",), tunables={"H": (8, 4)},
)
def turned(p, t, device):
    \"\"\"One thread an element.\"\"\"
    return [KernelCall((-(-p.n // 32), -(-p.m // t.H)), (32, t.H), ("a", "b", p.m, p.n))]
"""

pytestmark = pytest.mark.usefixtures("cuda_compiler")


@pytest.fixture
def folder(tmp_path):
    """A user's kernel: the source and the plug-in that declares it."""
    (tmp_path / "turned.cu").write_text(SOURCE)
    (tmp_path / "turned.py").write_text(PLUGIN)
    return tmp_path


@pytest.fixture
def opened(folder, registry):
    """Return a function that opens a session on that kernel, as without a GPU."""
    discover((str(folder / "turned.py"),))
    kernel, problem = registry.kernels["transpose/cuda.turned"], registry.problem(PROBLEM)

    def of(tile=None, **options):
        return Session(registry, with_tile(kernel, tile or {}, problem, H100), problem, "sm_90a", None, **options)

    return of


@pytest.fixture
def session(opened):
    return opened()


@pytest.fixture
def look(session, folder):
    """Return a function that saves a text as the next version and returns what the session prints."""
    numbers = iter(range(1, 10))
    return lambda text, **headers: "\n".join(session.look(version(folder, next(numbers), text, headers)))


def version(folder, number, text, headers=None):
    """A version of the user's source, as if it had been saved."""
    files = {"turned.cu": text, **{f"{name}.cuh": content for name, content in (headers or {}).items()}}
    return keep({name: content.encode() for name, content in files.items()}, folder / "turned.cu", folder, number)


@contextmanager
def watching(folder, *words):
    """The command at work, its output line by line."""
    script = str(Path(sys.executable).with_name("kernelmark"))
    command = [sys.executable, script, "watch", *words]
    env = {**os.environ, **NO_GPU}
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


def test_a_version_that_is_wrong_makes_the_exit_status_1(folder, kernelmark):
    (folder / "turned.cu").write_text(UNGUARDED)
    done = kernelmark("watch", "turned.cu", PROBLEM, "--plugin", "turned.py", "--once", **NO_GPU)
    assert (done.returncode, done.stderr) == (1, "")
    assert "turned.cu:5: out-of-bounds" in done.stdout


def test_what_changed_is_told_against_the_last_version_that_was_right(look, session):
    look(SOURCE)
    assert "FAIL: " in look(STAGED.replace("if (i < m && j < n) ", ""))
    assert not session.good
    assert "1024 (was 0)" in look(STAGED)
    assert "0 (was 1024)" in look(SOURCE)


def test_a_bug_in_a_tile_that_no_run_takes_is_one_report_that_names_the_tile(look, session):
    said = look(RACING).partition("FAIL: ")[2].splitlines()
    assert said[0] == "1 report (10 problems x 3 schedules, 2 tiles)"
    assert said[1].startswith("turned.cu:6: race: ")
    assert "  with H=4, in all schedules" in said
    assert [line.split()[:2] for line in said[-2:]] == [["PASS", "H=8"], ["FAIL", "H=4"]]
    assert not session.good


def test_only_the_tiles_asked_for_are_tested(opened, folder):
    session = opened({"H": 8})
    said = "\n".join(session.look(version(folder, 1, RACING)))
    assert session.good
    assert "problems x 3 schedules, 1 tile)\n  PASS  H=8" in said
    assert "H=4" not in said


@pytest.mark.parametrize(
    ("tile", "said"),
    [
        ({"H": 5}, "--tile H=5: H is 5, transpose/cuda.turned has 8, 4"),
        ({"W": 8}, "--tile W=8: W is unknown, expected one of H"),
    ],
)
def test_a_tile_that_the_kernel_has_not_is_refused_with_those_it_has(opened, complaint, tile, said):
    assert complaint(lambda: opened(tile)) == said


@pytest.mark.parametrize("text", ["H", "H=", "H=8,", "H=8 W=4", ""])
def test_a_tile_of_another_form_is_refused_with_the_form(complaint, text):
    assert complaint(lambda: _tile(text)) == f"--tile {text}: expected NAME=VALUE, several separated by commas: T=32"


def test_a_tile_is_read_as_in_a_kernels_id():
    assert _tile("BM=64,BN=32") == {"BM": 64, "BN": 32}


def test_versions_are_compared_with_another_source_where_one_is_named(opened, folder):
    session = opened(vs=keep({"other.cu": STAGED.encode()}, folder / "other.cu", folder, 0))
    for number in (1, 2):
        assert session.beside.name == "other.cu"
        assert "0 (was 1024)" in "\n".join(session.look(version(folder, number, SOURCE)))


def test_another_source_that_does_not_compile_is_named(opened, folder):
    other = keep({"other.cu": BROKEN.encode()}, folder / "other.cu", folder, 0)
    with pytest.raises(UsageError, match=r"/other\.cu does not compile for sm_90a"):
        opened(vs=other)


def test_a_session_without_a_version_has_a_summary(session):
    assert session.summary() == "no version was tried"


def test_a_version_that_does_not_compile_is_told_by_the_users_file(look, session, folder):
    said = look(BROKEN)
    assert f"{folder / 'turned.cu'} does not compile for sm_90a" in said
    assert str(folder / "1" / "turned.cu") not in said
    assert not session.good


@pytest.mark.parametrize("place", ["", "{folder}/"])
def test_headers_beside_the_source_belong_to_its_version(look, folder, place):
    include = place.format(folder=folder.name)
    text = SOURCE.replace('"common.cuh"', f'"common.cuh"\n#include "{include}width.cuh"').replace(
        "* H", "* (H - 8 + width)"
    )
    assert "PASS: no races or memory errors" in look(text, width="constexpr int width = 8;\n")
    assert "FAIL: " in look(text, width="constexpr int width = 7;\n")


def test_without_a_host_compiler_it_is_said_that_nothing_was_verified(look, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "not verified: no GPU is here, and the emulator needs no-such-compiler" in look(SOURCE)


def test_a_launch_that_the_emulator_refuses_is_a_complaint(look):
    assert "FAIL: " in look(SOURCE.replace("int m, int n)", "int m, int n, int l)"))


def test_two_versions_are_two_contenders_of_one_job(folder, registry):
    versions = [version(folder, number, text) for number, text in enumerate((SOURCE, STAGED), 1)]
    plugins = (str(folder / "turned.py"),)
    comparison = Comparison("transpose/cuda.turned", PROBLEM, (), plugins, Budget(0.01), {"H": 4})
    job = job_of(comparison, versions[1], versions[0])
    known = discover(job.plugins).kernels
    assert [known[name].tunables for name in job.kernels] == [{"H": (4,)}] * 2
    assert [Path(known[name].source).read_text() for name in job.kernels] == [STAGED, SOURCE]
    with Workers() as workers:
        rows = workers.run(job, WorkerKey("cuda", 1))
    assert [row.kernel for row in rows] == ["transpose/watch.current", "transpose/watch.previous"]
    assert {row.status for row in rows} <= {"ok", "unsupported"}, rows


def test_the_vendors_calls_of_the_same_numerics_are_what_a_kernel_is_set_against(registry):
    kernel, problem = registry.kernels["gemm/cuda.mma_tf32"], registry.problem("gemm/m512n512k512/f32/NT")
    assert counterparts(registry, kernel, problem, None) == ("gemm/cublas.gemmex_tf32",)
    assert counterparts(registry, kernel, problem, "*/cublas.sgemm") == ("gemm/cublas.sgemm",)


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
