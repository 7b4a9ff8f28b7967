"""Watching a file: the version that a save is compared with, how the command ends, and the log."""

import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.case import Budget, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import digest_of
from kernelmark.bench.report.history import history_document, history_page
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.tune.tuned import sources_of
from kernelmark.bench.tune.watch import session as watched
from kernelmark.bench.tune.watch.session import Log
from kernelmark.bench.tune.watch.versions import VersionTiming, counterparts, job_of, keep
from support.tuning import BROKEN, PROBLEM, RACING, SOURCE, STAGED, UNGUARDED, version

pytestmark = pytest.mark.usefixtures("cuda_compiler")


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
    assert f"\n{PROBLEM} itself: all blocks in 3 schedules" in said
    assert "H=4" not in said


LOOPS = """  int row = 0;
  while (row < i) row += 1;
  while (row > i) row -= 1;
  for (int part = 0; part < H; part += 8)
    for (int k = j; k < n; k += 1 << 20)
      if (i < m) b[k * m + row] = a[row * n + k];
"""


def test_loops_that_never_go_round_twice_are_named_where_their_bound_is_no_constant(look):
    said = look(SOURCE.replace("  if (i < m && j < n) b[j * m + i] = a[i * n + j];\n", LOOPS)).splitlines()
    assert [line for line in said if "second round" in line] == [
        "  not tested: a second round of the loop in turned.cu:7, `row > i`",
        "  not tested: a second round of the loop in turned.cu:9, `int k = j; k < n; k += 1 << 20`",
    ]


@pytest.mark.parametrize(
    ("tile", "said"),
    [
        ({"H": 5}, "transpose/cuda.turned@H=5: H is 5, transpose/cuda.turned has 8, 4"),
        ({"W": 8}, "transpose/cuda.turned@W=8: W is unknown, expected one of H"),
    ],
)
def test_a_tile_that_the_kernel_has_not_is_refused_with_those_it_has(opened, complaint, tile, said):
    assert complaint(lambda: opened(tile)) == said


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
    comparison = VersionTiming("transpose/cuda.turned@H=4", PROBLEM, (), plugins, Budget(0.01))
    job = job_of(comparison, versions[1], versions[0])
    known = discover(job.plugins).kernels
    assert [known[name].tile for name in job.kernels] == [{"H": 4}] * 2
    assert [Path(known[name].source).read_text() for name in job.kernels] == [STAGED, SOURCE]
    with Workers() as workers:
        rows = workers.run(job, WorkerKey("cuda", 1))
    assert [row.kernel for row in rows] == ["transpose/watch.current@H=4", "transpose/watch.previous@H=4"]
    assert {row.status for row in rows} <= {"ok", "unsupported"}, rows


def test_the_vendors_calls_of_the_same_numerics_are_what_a_kernel_is_set_against(registry):
    kernel, problem = registry.kernels["gemm/cuda.mma_tf32"], registry.problem("gemm/m512n512k512/f32/NT")
    vendors = ("gemm/cublas.gemmex_tf32", "gemm/cublaslt.heuristic_tf32")
    assert counterparts(registry, kernel, problem, None) == vendors
    fp32 = counterparts(registry, registry.kernels["gemm/cuda.tiled"], problem, None)
    assert {"gemm/cublas.sgemm", "gemm/cublaslt.heuristic"} <= set(fp32)
    assert not [name for name in fp32 if registry.kernels[name].on_request]
    assert counterparts(registry, kernel, problem, "*/cublas.sgemm") == ("gemm/cublas.sgemm",)


def test_a_version_shows_what_it_counts_beside_the_one_before(look):
    first, second = look(SOURCE), look(STAGED)
    (before, after) = (next(line for line in said.splitlines() if "wavefronts" in line) for said in (first, second))
    assert before.split() == ["wavefronts", "0"]
    assert after.endswith("ideal (was 0)")
    assert "(was" not in next(line for line in second.splitlines() if line.startswith("sectors"))


ROOT = Path(__file__).resolve().parents[2]
TILED = str(ROOT / "cuda/gemm/tiled.cu")
WGMMA = str(ROOT / "cuda/gemm/wgmma.cu")
SQUARE = "gemm/m64n64k64/f32/NT"
#: The driver then finds none, and the emulator judges.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@contextmanager
def watching(folder, *words):
    script = str(Path(sys.executable).with_name("kernelmark"))
    command = [sys.executable, script, "watch", *words]
    env = {**os.environ, **NO_GPU, "XDG_DATA_HOME": str(folder / "data")}
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process, end):
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
    assert "\ngemm/m512n512k512/f32/NT itself: 9 of 256 blocks, whose results were not" in done.stdout
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
        (("turned.cu", PROBLEM), "turned.cu: no registered kernel uses this file; --plugin names the file"),
        ((TILED, "gemm/m5n5k5/f16/NT"), "gemm/cuda.tiled has no f16 path; it has f32"),
        ((TILED, PROBLEM), "is not a problem of gemm, which gemm/cuda.tiled computes"),
        ((TILED, "gemm/m5"), "gemm/m5: sizes are 'm5', expected"),
        ((TILED, SQUARE, "--kernel", "gemm/cuda.naive"), "expected one of gemm/cuda.tiled"),
        ((TILED, SQUARE, "--against", "none"), "--against 'none': matches no GPU kernel"),
        ((TILED, SQUARE, "--arch", "sm_1"), "arch 'sm_1': its limits are not known"),
        ((WGMMA, "gemm/m64n64k64/f16/NT", "--arch", "sm_80"), "--arch sm_80: gemm/cuda.wgmma is for sm_90a"),
    ],
)
def test_bad_input_is_one_line(folder, called, words, said):
    assert said in called("watch", *words, "--once").refusal


@pytest.mark.gpu
def test_on_a_gpu_the_version_is_timed_beside_the_vendors_call(kernelmark):
    done = kernelmark("watch", TILED, "gemm/m512n512k512/f32/NT", "--once", "--against", "gemm/cublas.sgemm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gemm/cublas.sgemm" in done.stdout.partition("this version against it")[2]


KERNEL = "transpose/cuda.turned"


@pytest.fixture
def saved(folder, store):
    """Return a function that lets a session look at texts and logs them; the histories are in the store."""

    def all_of(session, *texts):
        log = Log(store, session)
        for number, text in enumerate(texts, 1):
            list(session.look(version(folder, number, text)))
            log.add({"turned.cu": text.encode()})
        return store.versions(KERNEL, PROBLEM)

    return all_of


@pytest.fixture
def emulator_passes(monkeypatch):
    """The emulator's part is left out: it is slow, and other tests have it."""
    from kernelmark.bench.tune.watch.emulator import Emulated

    monkeypatch.setattr(watched, "emulate", lambda *words: Emulated(words[1].tile_for(words[2], words[3]), skipped="x"))


def test_without_a_gpu_a_version_has_its_verdict_and_resources_and_no_rate(saved, session, registry):
    found = saved(session, SOURCE, STAGED.replace("if (i < m && j < n) ", ""))
    first, last = (kept.version for kept in found)
    assert (first.by, first.verdict, first.right, first.tile, first.arch) == ("watch", "PASS", True, "H=8", "sm_90a")
    assert last.verdict.startswith("FAIL, ")
    assert last.right is False
    assert first.registers
    assert (first.spill_bytes, first.time_s, first.compared) == (0, None, ())
    assert [each.against_first for each in history_document(KERNEL, PROBLEM, found).versions] == [None, None]
    assert found[0].digest == digest_of(sources_of(registry.kernels[KERNEL]))


@pytest.mark.usefixtures("emulator_passes")
def test_the_history_shows_a_diff_for_each_step_and_names_the_compilers_refusal(saved, session):
    found = saved(session, SOURCE, SOURCE, BROKEN)
    page = list(history_page(history_document(KERNEL, PROBLEM, found), diff=True))
    assert page[0] == f"{KERNEL} on {PROBLEM}: 3 versions, 0 right"
    assert page[-2] == "version 2 after version 1: the sources are the same"
    assert page[-1].startswith("version 3 after version 2\n--- turned.cu 2\n+++ turned.cu 3\n")
    assert "\n-  if (i < m && j < n) b[j * m + i]" in page[-1]
    assert "\n+  if (i < m && j < n) c[j * m + i]" in page[-1]
    assert found[2].version.verdict == "FAIL, does not compile"


@pytest.mark.usefixtures("emulator_passes")
def test_on_a_gpu_rates_of_one_job_have_their_interval_and_others_are_marked_as_quotients(saved, opened, monkeypatch):
    times = {"current": iter((4e-3, 2e-3, 1e-3)), "previous": iter((4e-3, 2e-3)), "gemm": iter((8e-3,) * 3)}

    def compared(comparison, current, previous):
        ids = (comparison.ids[0], *([comparison.ids[1]] if previous else []), "transpose/cublas.geam")
        medians = [next(times[name]) for name in ("current", *(["previous"] if previous else []), "gemm")]
        return [_measured(kernel, median) for kernel, median in zip(ids, medians, strict=True)]

    monkeypatch.setattr(watched, "compare", compared)
    session = opened()
    session._comparison = VersionTiming(KERNEL, PROBLEM, (), (), Budget(0.01))
    found = saved(session, SOURCE, STAGED, SOURCE)
    document = history_document(KERNEL, PROBLEM, found)
    _, second, third = (each.against_first for each in document.versions)
    assert (second.in_turn, round(second.ratio)) == (True, 2)
    assert (third.in_turn, round(third.ratio)) == (False, 4)
    assert second.low <= 2 <= second.high
    text = "\n".join(history_page(document, diff=False))
    assert "(not in turn)" in text
    assert "8x [8, 8] cublas.geam" in text
    assert [[(one.kernel, one.version) for one in each.against] for each in document.versions] == [
        [("transpose/cublas.geam", None)],
        [("", 1), ("transpose/cublas.geam", None)],
        [("", 2), ("transpose/cublas.geam", None)],
    ]


def _measured(kernel, median):
    """What a worker reports of a contender whose samples scatter by a hundredth."""
    samples = [median * (1 + 0.01 * (i % 3 - 1)) for i in range(15)]
    return Measurement(
        kernel=kernel, problem=PROBLEM, job="j", samples=samples, interval=median_interval(samples), status="ok",
        device_name="Some GPU", interval_scope="within-process",
    )  # fmt: skip
