"""`kernelmark tune` as a user runs it, and `run --tuned` after it."""

import json

import pytest

from support.plugins import COUNTED
from support.processes import complaints

pytestmark = pytest.mark.usefixtures("registry")  # which forgets what the plug-in registers
KERNEL, PROBLEM = "copy/numba.streaming", "copy/m64n1024/f32"
QUICK = ("--mode", "hot", "--max-time", "0.01", "--no-ceilings", "--threads", "1", "--plugin", COUNTED)
RACE = ("--processes", "3", "--spread", "0")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("copy/numpy.copyto", PROBLEM), "copy/numpy.copyto: has no tunables; those of copy that have some are copy/"),
        ((f"{KERNEL}@X=1", PROBLEM), f"{KERNEL}@X=1: X is unknown, expected one of "),
        ((KERNEL, "copy/m3"), "copy/m3: "),
        ((KERNEL, PROBLEM, "--threads", "1,2"), "--threads 1,2: a tuning has one number of threads"),
        (
            (KERNEL, PROBLEM, "--processes", "1"),
            "Invalid value for '--processes': is '1', expected an integer ",
        ),
        ((KERNEL, PROBLEM, "--budget", "0"), "Invalid value for '--budget': 0 is not in the range x>=1."),
        ((KERNEL, PROBLEM, "--strategy", "luck"), "Invalid value for '--strategy': 'luck' is not one of "),
        ((KERNEL, PROBLEM, "--tuned", "/proc/t.json"), "/proc/t.json: cannot be written: "),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(called, words, refusal):
    line = called("tune", *words).refusal
    assert line.startswith(f"kernelmark: {refusal}")


def test_without_a_gpu_a_cuda_kernel_is_offered_static_ranking(called):
    from kernelmark.bench.measure.present import cuda_missing

    if cuda_missing() is None:
        pytest.skip("a GPU answers")
    done = called("tune", "gemm/cuda.tiled", "gemm/m64n64k64/f32/NT")
    assert done.status == 2
    assert done.err.startswith("kernelmark: gemm/cuda.tiled: no NVIDIA driver here")
    assert "--static" in done.err


@pytest.mark.long
def test_a_session_tunes_is_interrupted_goes_on_and_run_uses_the_tile(tmp_path, kernelmark):
    words = ("tune", "copy/mine.interrupting", PROBLEM, *QUICK, *RACE, "--db", "r.db")
    stopped = kernelmark(*words)
    assert (stopped.returncode, complaints(stopped.stderr)) == (130, [])
    assert stopped.stdout.endswith("interrupted; every row is kept, and the same command goes on\n")
    done = kernelmark(*words)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert done.stdout.splitlines()[0] == stopped.stdout.splitlines()[0]
    assert "WORK=1 is " in done.stdout
    assert f"`kernelmark run {PROBLEM} --tuned auto` uses it" in done.stdout
    (file,) = (tmp_path / "data" / "kernelmark" / "tuned").iterdir()
    (tile,) = json.loads(file.read_text())["tiles"]
    assert (tile["kernel"], tile["tile"]) == ("copy/mine.interrupting", "WORK=1")
    ran = kernelmark("run", PROBLEM, *QUICK, "--kernels", "copy/mine.inter*", "--tuned", "auto", "--csv", "o.csv")
    assert ran.returncode == 0
    assert f"tuned: copy/mine.interrupting takes WORK=1 on {PROBLEM}, as run {tile['run']} found" in ran.stderr
    assert tile["run"] in (tmp_path / "o.csv").read_text()
    exported = kernelmark("export", "race-mine.interrupting-1", "--format", "c", "--db", "r.db", "-o", "tuned.h")
    assert (exported.returncode, exported.stdout) == (0, "")
    name = "KERNELMARK_COPY_MINE_INTERRUPTING_M64N1024_F32_T1_WORK"
    assert f"#define {name} 1\n" in (tmp_path / "tuned.h").read_text()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--format", "c"), "has no tile; `kernelmark tune KERNEL PROBLEM` finds tiles"),
        (
            ("--format", "c", "--tuned", "no.json"),
            "no.json: cannot be read: No such file or directory; `kernelmark tune",
        ),
        (("--tuned", "auto"), "--tuned: names the tiles of --format c, not of csv; leave it out"),
        (("no-run", "--format", "c"), "there is no store; "),
    ],
)
def test_an_export_without_adopted_tiles_is_one_line(called, words, refusal):
    assert refusal in called("export", *words).refusal


@pytest.mark.long
def test_a_default_that_is_wrong_ends_in_one_line_and_exit_status_1(kernelmark):
    done = kernelmark("tune", "copy/mine.wrong", PROBLEM, *QUICK)
    assert done.returncode == 1
    (line,) = complaints(done.stderr)
    assert line.startswith(f"kernelmark: copy/mine.wrong on {PROBLEM}: is wrong with its default tile: b[0, 0] is 0, ")
    assert line.endswith("; nothing was tuned")
