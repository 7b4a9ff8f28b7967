"""`kernelmark watch`: versions of a .cu, compiled, judged and compared as they are saved."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.measure.measurement import Measurement
from bench.measure.stats import median_interval
from bench.plan.case import Budget, WorkerKey
from bench.plan.discovery import discover
from bench.run.pool import Workers
from bench.tune.inspect import InspectRow
from bench.tune.watch import emulator
from bench.tune.watch.comparison import Comparison, job_of
from bench.tune.watch.contenders import counterparts
from bench.tune.watch.session import Session
from bench.tune.watch.source import keep, saves
from bench.tune.watch.view import resource_table, time_table

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = "transpose/m61n47/f32/out"
SOURCE = """#include "common.cuh"

template <typename T> __global__ void turned(const T *a, T *b, int m, int n) {
  const int i = blockIdx.y * 8 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
  if (i < m && j < n) b[j * m + i] = a[i * n + j];
}
"""
STAGED = SOURCE.replace("  if (i", "  __shared__ T tile[8][32];\n  if (i").replace(
    "b[j * m + i] = a[i * n + j]",
    "{ tile[threadIdx.y][threadIdx.x] = a[i * n + j]; b[j * m + i] = tile[threadIdx.y][threadIdx.x]; }",
)
UNGUARDED = SOURCE.replace("if (i < m && j < n) ", "")
BROKEN = SOURCE.replace("b[j * m + i]", "c[j * m + i]")
#: The driver then finds none, and the emulator judges.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
PLUGIN = """from pathlib import Path

from kernelmark import KernelCall, cuda_kernel


@cuda_kernel(
    "transpose", source=str(Path(__file__).with_name("turned.cu")), entry="turned<bits::{dtype}>", dtypes=("f32",),
    places=("out",),
)
def turned(p, t):
    \"\"\"One thread an element.\"\"\"
    return [KernelCall((-(-p.n // 32), -(-p.m // 8)), (32, 8), ("a", "b", p.m, p.n))]
"""

pytestmark = pytest.mark.usefixtures("cuda_compiler")


@pytest.fixture
def folder(tmp_path):
    """A user's kernel: the source and the plug-in that declares it."""
    (tmp_path / "turned.cu").write_text(SOURCE)
    (tmp_path / "turned.py").write_text(PLUGIN)
    return tmp_path


@pytest.fixture
def session(folder, registry):
    """A session on that kernel, as without a GPU."""
    discover((str(folder / "turned.py"),))
    return Session(registry, registry.kernels["transpose/cuda.turned"], registry.problem(PROBLEM), "sm_90a", None)


@pytest.fixture
def look(session, folder):
    """What the session says of a text, saved as the next version."""
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
    assert "right in the emulator" in done.stdout


def test_each_save_is_compiled_and_ctrl_c_ends_with_130(folder):
    with watching(folder, "turned.cu", PROBLEM, "--plugin", "turned.py") as process:
        assert "right in the emulator" in until(process, "waiting")
        (folder / "turned.cu").write_text(STAGED)
        assert "1024 (was 0)" in until(process, "waiting")
        (folder / "turned.cu").write_text(BROKEN)
        said = until(process, "waiting")
        assert "turned.cu does not compile for sm_90a" in said
        assert 'turned.cu(5): error: identifier "c" is undefined' in said
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


def test_a_version_that_is_wrong_makes_the_exit_status_1(folder, kernelmark):
    (folder / "turned.cu").write_text(UNGUARDED)
    done = kernelmark("watch", "turned.cu", PROBLEM, "--plugin", "turned.py", "--once", **NO_GPU)
    assert (done.returncode, done.stderr) == (1, "")
    assert "turned.cu:5: out-of-bounds" in done.stdout


def test_what_changed_is_told_against_the_last_version_that_was_right(look, session):
    look(SOURCE)
    assert "wrong in the emulator" in look(STAGED.replace("if (i < m && j < n) ", ""))
    assert not session.good
    assert "1024 (was 0)" in look(STAGED)
    assert "0 (was 1024)" in look(SOURCE)


def test_a_version_that_does_not_compile_is_told_by_the_users_file(look, session, folder):
    said = look(BROKEN)
    assert f"{folder / 'turned.cu'} does not compile for sm_90a" in said
    assert str(folder / "1" / "turned.cu") not in said
    assert not session.good


@pytest.mark.parametrize("place", ["", "{folder}/"])
def test_headers_beside_the_source_belong_to_its_version(look, folder, place):
    include = place.format(folder=folder.name)
    text = SOURCE.replace('"common.cuh"', f'"common.cuh"\n#include "{include}width.cuh"').replace("* 8", "* width")
    assert "right in the emulator" in look(text, width="constexpr int width = 8;\n")
    assert "wrong in the emulator" in look(text, width="constexpr int width = 7;\n")


def test_without_the_emulator_it_is_said_that_nothing_was_verified(look, tmp_path, monkeypatch):
    monkeypatch.setattr(emulator, "FOLDER", tmp_path)
    assert "not verified: no GPU is here, and the emulator comes with a checkout" in look(SOURCE)


def test_a_launch_that_the_emulator_refuses_is_a_complaint(look):
    assert "wrong in the emulator" in look(SOURCE.replace("int m, int n)", "int m, int n, int l)"))


def test_two_versions_are_two_contenders_of_one_job(folder, registry):
    versions = [version(folder, number, text) for number, text in enumerate((SOURCE, STAGED), 1)]
    plugins = (str(folder / "turned.py"),)
    job = job_of(Comparison("transpose/cuda.turned", PROBLEM, (), plugins, Budget(0.01)), versions[1], versions[0])
    known = discover(job.plugins).kernels
    assert [Path(known[name].source).read_text() for name in job.kernels] == [STAGED, SOURCE]
    with Workers() as workers:
        rows = workers.run(job, WorkerKey("cuda", 1))
    assert [row.kernel for row in rows] == ["transpose/watch.current", "transpose/watch.previous"]
    assert {row.status for row in rows} <= {"ok", "unsupported"}, rows


def test_the_vendors_calls_of_the_same_numerics_are_what_a_kernel_is_set_against(registry):
    kernel, problem = registry.kernels["gemm/cuda.mma_tf32"], registry.problem("gemm/m512n512k512/f32/NT")
    assert counterparts(registry, kernel, problem, None) == ("gemm/cublas.gemmex_tf32",)
    assert counterparts(registry, kernel, problem, "*/cublas.sgemm") == ("gemm/cublas.sgemm",)


def test_a_save_without_a_change_is_none(tmp_path):
    file = tmp_path / "a.cu"
    file.write_text("one")
    found = saves(file)
    assert next(found) == {"a.cu": b"one"}
    for delay_s, text in ((0.1, "one"), (0.7, "two")):
        threading.Timer(delay_s, file.write_text, [text]).start()
    assert next(found) == {"a.cu": b"two"}


def test_a_header_beside_the_file_is_watched_too(tmp_path):
    for name in ("a.cu", "b.cuh", "c.cu"):
        (tmp_path / name).write_text("one")
    found = saves(tmp_path / "a.cu")
    assert next(found) == {"a.cu": b"one", "b.cuh": b"one"}
    threading.Timer(0.1, (tmp_path / "b.cuh").write_text, ["two"]).start()
    assert next(found) == {"a.cu": b"one", "b.cuh": b"two"}


def test_a_file_that_an_editor_replaces_is_waited_for(tmp_path):
    file = tmp_path / "a.cu"
    file.write_text("one")
    found = saves(file)
    next(found)
    file.unlink()
    threading.Timer(0.3, file.write_text, ["two"]).start()
    assert next(found) == {"a.cu": b"two"}


TILED = str(ROOT / "cuda/gemm/tiled.cu")
WGMMA = str(ROOT / "cuda/gemm/wgmma.cu")
SQUARE = "gemm/m64n64k64/f32/NT"


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


def row(**values):
    used = {"registers": 32, "static_shared_bytes": 0, "dynamic_shared_bytes": 0, "spill_bytes": 0, "stack_bytes": 0}
    rest = {"kernel": "k", "tunables": "", "arch": "sm_80", "entry": "f", "problem": "p", "compiler": "c"}
    fits = {"threads": 256, "blocks_per_sm": 8, "occupancy": 1.0, "limiter": "warps"}
    return InspectRow(**{**rest, **used, **fits, **values})


def lines(table):
    return {line.split("  ")[0].strip(): line.split("  ")[-1].strip() for line in table.splitlines()}


def test_what_differs_from_the_version_before_says_what_it_was():
    found = lines(resource_table([row(registers=40, occupancy=0.75, limiter="registers")], [row()]))
    assert found["registers"] == "40 (was 32)"
    assert found["occupancy"] == "75% (was 100%)"
    assert found["limited by"] == "registers (was warps)"
    assert found["spill"] == "0"


def test_a_launch_that_is_new_is_compared_with_nothing():
    assert "was" not in resource_table([row(entry="g", registers=40)], [row()])


def measured(kernel, *times):
    samples = list(times) * 10
    return Measurement(kernel=kernel, samples=samples, interval=median_interval(samples))


def test_the_present_version_is_set_against_each_other_one_with_an_interval(registry):
    problem = registry.problem("gemm/m100n100k100/f32/NT")
    rows = [measured("a", 1e-3), measured("b", 2e-3), measured("c", 5e-4), measured("d", 1e-3)]
    refused = Measurement(kernel="e", status="unsupported", reason="no such thing")
    table = time_table([*rows, refused], {"a": "version 2"}, problem).splitlines()
    assert table[2].split() == ["version", "2", "1.00", "ms", "+0.0", "+0.0", "%", "2.00"]
    assert table[3].endswith(" 2x [2, 2] faster")
    assert table[4].endswith(" 0.5x [0.5, 0.5] slower")
    assert table[5].endswith(" 1x [1, 1] not told apart")
    assert table[-1] == "unsupported: e: no such thing"


def test_a_version_of_another_job_has_no_ratio_to_the_present_one(registry):
    rows = [measured("a", 1e-3), measured("b", 2e-3)]
    rows[1].job = "another"
    table = time_table(rows, {}, registry.problem("gemm/m100n100k100/f32/NT")).splitlines()
    assert table[3].endswith("not measured in turn")


def test_a_present_version_that_is_wrong_has_no_ratio(registry):
    wrong = Measurement(kernel="a", status="wrong", reason="c[0] is 0")
    table = time_table([wrong, measured("b", 2e-3)], {}, registry.problem("copy/m64n64/f32")).splitlines()
    assert table[2].split() == ["b", "2.00", "ms", "+0.0", "+0.0", "%", "0.0164"]
    assert table[-1] == "wrong: a: c[0] is 0"


@pytest.mark.gpu
def test_on_a_gpu_the_version_is_timed_beside_the_vendors_call(kernelmark):
    done = kernelmark("watch", TILED, "gemm/m512n512k512/f32/NT", "--once", "--against", "gemm/cublas.sgemm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gemm/cublas.sgemm" in done.stdout.partition("this version against it")[2]
