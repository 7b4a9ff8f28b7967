"""`watch`: comparisons of versions, tables, reports that are grouped by bug, how the command ends, and the log."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmark.bench.cli import watch
from kernelmark.bench.emulator.report import Diagnostic, Thread
from kernelmark.bench.emulator.sweep import Defect, EmulatedCase
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.case import Budget, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import digest_of
from kernelmark.bench.report.history import history_document, history_page
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.tune.tuned import sources_of
from kernelmark.bench.tune.watch import session as watched
from kernelmark.bench.tune.watch.emulator import Emulated, bugs, verdict
from kernelmark.bench.tune.watch.session import Log, resource_table, time_table
from kernelmark.bench.tune.watch.versions import VersionTiming, contents, counterparts, job_of, keep, saves
from support.pages import ROOT
from support.tuning import BROKEN, PROBLEM, RACING, SOURCE, STAGED, UNGUARDED, row, version


def test_saves_without_a_change_are_skipped_headers_are_watched_and_a_replaced_file_is_waited_for(tmp_path):
    for name in ("a.cu", "b.cuh", "c.cu"):
        (tmp_path / name).write_text("one")
    snapshots = saves(tmp_path / "a.cu")
    assert next(snapshots) == {"a.cu": b"one", "b.cuh": b"one"}
    for delay_s, name, text in ((0.1, "a.cu", "one"), (0.7, "b.cuh", "two")):
        threading.Timer(delay_s, (tmp_path / name).write_text, [text]).start()
    assert next(snapshots) == {"a.cu": b"one", "b.cuh": b"two"}
    (tmp_path / "a.cu").unlink()
    threading.Timer(0.3, (tmp_path / "a.cu").write_text, ["two"]).start()
    assert next(snapshots) == {"a.cu": b"two", "b.cuh": b"two"}


def test_a_named_pipe_is_refused_and_one_among_the_headers_is_left_out(tmp_path: Path, complaint: Any) -> None:
    (tmp_path / "a.cu").write_text("one")
    os.mkfifo(tmp_path / "b.cuh")
    assert contents(tmp_path / "a.cu") == {"a.cu": b"one"}
    os.mkfifo(tmp_path / "c.cu")
    refusal = f"{tmp_path}/c.cu: is a named pipe, expected a file"
    assert complaint(lambda: contents(tmp_path / "c.cu")) == refusal
    assert complaint(lambda: next(saves(tmp_path / "c.cu"))) == refusal


WHO = Thread((0, 0, 0), (1, 0, 0))
BIG, SMALL = SimpleNamespace(T=32), SimpleNamespace(T=16)


@pytest.fixture
def case(registry):
    kernel = registry.kernels["gemm/cuda.tiled"]
    return lambda size, tile=BIG: EmulatedCase(kernel, registry.problem(f"gemm/m{size}n5k7/f32/NT"), tile)


def report(kind, line, other_line=0):
    return Diagnostic(kind, f"{kind} on smem", "a.cu", line, WHO, 3, WHO if other_line else None, other_line)


def test_the_same_report_in_several_tiles_problems_and_schedules_is_one_bug(case):
    at = [(case(5), "forward"), (case(5), "reverse"), (case(9), "random"), (case(9, SMALL), "forward")]
    defects = tuple(Defect(tile_case, order, report("out-of-bounds", 7)) for tile_case, order in at)
    text = verdict(Emulated(BIG, (case(3), case(5), case(9), case(9, SMALL)), defects)).splitlines()
    assert text == [
        "FAIL: 1 report (3 problems x 3 schedules, 2 tiles)",
        "a.cu:7: out-of-bounds: out-of-bounds on smem; block (0, 0, 0) thread (1, 0, 0), 3 times",
        "  seen in 2 of 3 problems: gemm/m5n5k7/f32/NT gemm/m9n5k7/f32/NT",
        "  with T=32; T=16, in all schedules",
        "  FAIL  T=32  3 problems, the tile of this problem",
        "  FAIL  T=16  1 problem",
    ]


@pytest.mark.parametrize(
    ("reports", "number"),
    [
        ([("race", 7, 9), ("race", 9, 7)], 1),
        ([("race", 7, 9), ("race", 8, 9), ("uninitialised-read", 9)], 1),
        ([("race", 7, 9), ("race", 17, 19)], 2),
        ([("race", 7, 9), ("race", 17, 19), ("race", 9, 17)], 1),
        ([("out-of-bounds", 7), ("write-to-padding", 7)], 1),
        ([("out-of-bounds", 7), ("out-of-bounds", 8)], 2),
        ([("out-of-bounds", 7), ("race", 7, 7)], 2),
        ([("deadlock", 7), ("early-exit", 7)], 2),
    ],
)
def test_reports_that_a_barrier_or_an_index_connects_are_one_bug(case, reports, number):
    assert len(bugs([Defect(case(5), "forward", report(*words)) for words in reports])) == number


def test_a_race_is_named_before_what_it_leaves_unwritten(case):
    (bug,) = bugs([Defect(case(5), "forward", report(*facts)) for facts in (("uninitialised-read", 9), ("race", 7, 9))])
    first, second = str(bug).splitlines()
    assert first.startswith("a.cu:7: race")
    assert second.startswith("  also a.cu:9: uninitialised-read")


def test_a_wrong_result_is_a_separate_bug_only_if_no_report_explains_it(case):
    race, result = Defect(case(5), "forward", report("race", 7, 9)), Defect(case(5), "random", None, "c[0, 0] is 1")
    assert [str(bug) for bug in bugs([race, result])] == [str(race.report)]
    elsewhere = Defect(case(9), "random", None, "c[0, 0] is 2")
    assert [str(bug) for bug in bugs([race, result, elsewhere])][1:] == ["wrong result: c[0, 0] is 2"]


def test_a_tile_that_was_not_tested_is_named(case):
    untested = (SimpleNamespace(T=64),)
    lines = verdict(Emulated(BIG, (case(5),), untested=untested, left=(case(5, SMALL),))).splitlines()
    assert "1 case left out after the timeout" in lines[0]
    assert lines[-2:] == [
        "  not tested: T=16, left out after the timeout",
        "  not tested: T=64; it takes none of the small problems",
    ]


@pytest.mark.parametrize("wanted", [True, False])
def test_verdicts_are_coloured_only_on_a_terminal(monkeypatch, capsys, wanted):
    monkeypatch.setattr("kernelmark.bench.cli.watch.is_wanted", lambda stream, environ: wanted)
    watch._print("FAIL: 1 report\n  PASS  T=32")
    coloured = "\033[31m\033[1mFAIL\033[0m: 1 report\n  \033[32m\033[1mPASS\033[0m  T=32\n"
    assert capsys.readouterr().out == (coloured if wanted else "FAIL: 1 report\n  PASS  T=32\n")


def test_resources_that_differ_from_the_previous_version_show_the_previous_value():
    table = resource_table([row(registers=40, occupancy=0.75, limiter="registers")], [row()])
    cells = [re.split("  +", line.strip()) for line in table.splitlines()]
    changed = [["registers", "40 (was 32)"], ["occupancy", "75% (was 100%)"], ["limited by", "registers (was warps)"]]
    assert [words for words in cells if "was" in words[-1]] == changed
    assert ["spill", "0"] in cells
    assert "was" not in resource_table([row(entry="g", registers=40)], [row()]), "a new launch has no earlier values"


def measured(kernel, *times, **values):
    samples = list(times) * 10
    return Measurement(kernel=kernel, samples=samples, interval=median_interval(samples), **values)


def test_the_present_version_is_compared_with_each_contender_of_its_job_unless_it_is_wrong(registry):
    problem = registry.problem("gemm/m100n100k100/f32/NT")
    rows = [measured("a", 1e-3), measured("b", 2e-3), measured("c", 5e-4), measured("d", 1e-3)]
    rows.append(measured("f", 2e-3, job="another"))
    refused = Measurement(kernel="e", status="unsupported", reason="no such thing")
    table = time_table([*rows, refused], {"a": "version 2"}, problem).splitlines()
    assert table[2].split() == ["version", "2", "1.00", "ms", "+0.0", "+0.0", "%", "2.00"]
    assert table[3].endswith(" 2x [2, 2] faster")
    assert table[4].endswith(" 0.5x [0.5, 0.5] slower")
    assert table[5].endswith(" 1.00x [1, 1] tie")
    assert table[6].endswith("not measured in turn")
    assert table[-1] == "unsupported: e: no such thing"
    wrong = Measurement(kernel="a", status="wrong", reason="c[0] is 0")
    table = time_table([wrong, measured("b", 2e-3)], {}, registry.problem("copy/m64n64/f32")).splitlines()
    assert table[2].split() == ["b", "2.00", "ms", "+0.0", "+0.0", "%", "0.0164"], "it has no ratio"
    assert table[-1] == "wrong: a: c[0] is 0"


def test_both_tables_fit_the_terminal(registry, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    names = ("gemm/cuda.warptile", "gemm/cublas.gemmex_tf32_colmajor")
    rows = [measured(name, 1e-3) for name in names]
    rows.append(Measurement(kernel=names[1], status="unsupported", reason="x " * 9))
    launches = [row(entry=f"conv_{name}<8,N,T>", limiter="shared memory") for name in ("columns", "product", "sums")]
    problem = registry.problem("gemm/m100n100k100/f32/NT")
    shown = time_table(rows, {}, problem) + "\n" + resource_table(launches, [])
    assert max(map(len, shown.splitlines())) <= 60


def test_changes_are_shown_against_the_last_version_that_was_right(look, session):
    assert re.search(r"^wavefronts +0 *$", look(SOURCE), re.MULTILINE)
    assert "FAIL: " in look(STAGED.replace("if (i < m && j < n) ", ""))
    assert not session.good
    staged = look(STAGED)
    assert "1024 (was 0)" in staged
    assert re.search(r"^wavefronts .*ideal \(was 0\) *$", staged, re.MULTILINE)
    assert re.search(r"^sectors [^(]*$", staged, re.MULTILINE), "an unchanged value is shown once"
    assert "0 (was 1024)" in look(SOURCE)


def test_a_bug_in_a_tile_that_no_run_uses_is_one_report_that_names_the_tile(look, session):
    lines = look(RACING).partition("FAIL: ")[2].splitlines()
    assert lines[0] == "1 report (10 problems x 3 schedules, 2 tiles)"
    assert lines[1].startswith("turned.cu:6: race: ")
    assert "  with H=4, in all schedules" in lines
    assert [line.split()[:2] for line in lines[-2:]] == [["PASS", "H=8"], ["FAIL", "H=4"]]
    assert not session.good


def test_only_a_given_tile_is_tested(opened, folder):
    session = opened({"H": 8})
    assert session.summary() == "no version was tried"
    text = "\n".join(session.look(version(folder, 1, RACING)))
    assert session.good
    assert "problems x 3 schedules, 1 tile)\n  PASS  H=8" in text
    assert f"\n{PROBLEM} itself: all blocks in 3 schedules" in text
    assert "H=4" not in text


LOOPS = """  int row = 0;
  while (row < i) row += 1;
  while (row > i) row -= 1;
  constexpr int parts = 1;
  for (int part = 0; part < parts * H; part += 8)
    for (int k = j; k < n; k += 1 << 20)
      if (i < m) b[k * m + row] = a[row * n + k];
"""


def test_loops_without_a_second_iteration_are_named_unless_their_bound_is_constant(look):
    lines = look(SOURCE.replace("  if (i < m && j < n) b[j * m + i] = a[i * n + j];\n", LOOPS)).splitlines()
    assert [line for line in lines if "second iteration" in line] == [
        "  not tested: a second iteration of the loop in turned.cu:7, `row > i`",
        "  not tested: a second iteration of the loop in turned.cu:10, `int k = j; k < n; k += 1 << 20`",
    ]


def test_a_tile_that_the_kernel_does_not_have_is_refused_with_its_values(opened, complaint):
    assert complaint(lambda: opened({"H": 5})) == f"{KERNEL}@H=5: H is 5, expected one of 8, 4"
    assert complaint(lambda: opened({"W": 8})) == f"{KERNEL}@W=8: W is unknown, expected one of H"


def test_versions_are_compared_with_another_source_if_one_is_named(opened, folder):
    session = opened(vs=keep({"other.cu": STAGED.encode()}, folder / "other.cu", folder, 0))
    for number in (1, 2):
        assert session.beside.name == "other.cu"
        assert "0 (was 1024)" in "\n".join(session.look(version(folder, number, SOURCE)))
    broken = keep({"broken.cu": BROKEN.encode()}, folder / "broken.cu", folder, 3)
    with pytest.raises(UsageError, match=r"/broken\.cu does not compile for sm_90a"):
        opened(vs=broken)


@pytest.mark.parametrize("place", ["", "{folder}/"])
def test_headers_in_the_folder_of_the_source_belong_to_its_version(look, folder, place):
    include = place.format(folder=folder.name)
    text = SOURCE.replace("* H", "* (H - 8 + width)")
    text = text.replace('"common.cuh"', f'"common.cuh"\n#include "{include}width.cuh"')
    assert "PASS: no races or memory errors" in look(text, width="constexpr int width = 8;\n")
    assert "FAIL: " in look(text, width="constexpr int width = 7;\n")


def test_without_a_host_compiler_a_version_is_reported_as_not_verified(look, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "not verified: there is no GPU, and the emulator needs no-such-compiler" in look(SOURCE)


def test_a_launch_that_the_emulator_refuses_is_a_failure(look):
    assert "FAIL: " in look(SOURCE.replace("int m, int n)", "int m, int n, int l)"))


def test_two_versions_are_two_contenders_of_one_job(folder, registry):
    previous, current = (version(folder, number, text) for number, text in enumerate((SOURCE, STAGED), 1))
    plugins = (str(folder / "turned.py"),)
    job = job_of(VersionTiming(f"{KERNEL}@H=4", PROBLEM, (), plugins, Budget(0.01)), current, previous)
    known = discover(job.plugins).kernels
    assert [known[name].tile for name in job.kernels] == [{"H": 4}] * 2
    assert [Path(known[name].source).read_text() for name in job.kernels] == [STAGED, SOURCE]
    with Workers() as workers:
        rows = workers.run(job, WorkerKey("cuda", 1))
    assert [row.kernel for row in rows] == ["transpose/watch.current@H=4", "transpose/watch.previous@H=4"]
    assert {row.status for row in rows} <= {"ok", "unsupported"}, rows


def test_a_kernel_is_compared_with_the_vendors_calls_of_the_same_numerics(registry):
    kernel, problem = registry.kernels["gemm/cuda.mma_tf32"], registry.problem("gemm/m512n512k512/f32/NT")
    vendors = ("gemm/cublas.gemmex_tf32", "gemm/cublaslt.heuristic_tf32")
    assert counterparts(registry, kernel, problem, None) == vendors
    fp32 = counterparts(registry, registry.kernels["gemm/cuda.tiled"], problem, None)
    assert {"gemm/cublas.sgemm", "gemm/cublaslt.heuristic"} <= set(fp32)
    assert not [name for name in fp32 if registry.kernels[name].on_request]
    assert counterparts(registry, kernel, problem, "*/cublas.sgemm") == ("gemm/cublas.sgemm",)


TILED = str(ROOT / "cuda/gemm/tiled.cu")
#: Hides all GPUs, so that the emulator judges a version.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def until(process, end):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(end):
            return "".join(lines)
    raise AssertionError("".join(lines))


@pytest.mark.usefixtures("cuda_compiler")
def test_a_kernel_of_the_tree_is_compiled_and_emulated_once(kernelmark):
    done = kernelmark("watch", TILED, "gemm/m512n512k512/f32/NT", "--once", **NO_GPU)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sgemm_tiled<32, Op::N, Op::T>" in done.stdout
    assert "PASS: no races or memory errors (11 problems x 3 schedules, 2 tiles)\n  PASS  T=32  11 prob" in done.stdout
    assert "\ngemm/m512n512k512/f32/NT itself: 9 of 256 blocks, whose results were not" in done.stdout
    assert "\033" not in done.stdout


@pytest.mark.usefixtures("cuda_compiler")
def test_each_save_is_compiled_and_ctrl_c_ends_with_130(folder):
    script = str(Path(sys.executable).with_name("kernelmark"))
    command = [sys.executable, script, "watch", "turned.cu", PROBLEM, "--plugin", "turned.py"]
    env = {**os.environ, **NO_GPU, "XDG_DATA_HOME": str(folder / "data")}
    pipes = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=env, **pipes) as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert "PASS: no races or memory errors" in until(process, "waiting")
        (folder / "turned.cu").write_text(STAGED)
        assert "1024 (was 0)" in until(process, "waiting")
        (folder / "turned.cu").write_text(BROKEN)
        text = until(process, "waiting")
        assert "turned.cu does not compile for sm_90a" in text
        assert '\nturned.cu(5): error: identifier "c" is undefined' in text, "names the user's file, not its copy"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().strip().splitlines() == [
            "3 versions tried, 2 passed",
            "last that passed: version 2",
            "last: version 3, FAIL, does not compile",
        ]
        assert process.wait(timeout=20) == 130
    with Store(folder / "data" / "kernelmark" / "results.db", create=False) as store:
        versions = store.versions("transpose/cuda.turned", PROBLEM)
    verdicts = [(v.version.verdict, v.version.right, v.version.time_s, bool(v.version.registers)) for v in versions]
    assert verdicts == [("PASS", True, None, True)] * 2 + [("FAIL, does not compile", False, None, False)]
    assert [each.sources["turned.cu"].decode() for each in versions] == [SOURCE, STAGED, BROKEN]
    assert "common.cuh" in versions[0].sources


@pytest.mark.usefixtures("cuda_compiler")
def test_a_version_that_is_wrong_makes_the_exit_status_1(folder, kernelmark):
    (folder / "turned.cu").write_text(UNGUARDED)
    done = kernelmark("watch", "turned.cu", PROBLEM, "--plugin", "turned.py", "--once", **NO_GPU)
    assert (done.returncode, done.stderr) == (1, "")
    assert "turned.cu:5: out-of-bounds" in done.stdout


@pytest.mark.gpu
def test_on_a_gpu_the_version_is_timed_in_turn_with_the_vendors_call(kernelmark):
    done = kernelmark("watch", TILED, "gemm/m512n512k512/f32/NT", "--once", "--against", "gemm/cublas.sgemm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gemm/cublas.sgemm" in done.stdout.partition("this version against it")[2]


KERNEL = "transpose/cuda.turned"


@pytest.fixture
def saved(folder, store):
    """Return a function that lets a session look at texts, logs them, and returns the stored versions."""

    def all_of(session, *texts):
        log = Log(store, session)
        for number, text in enumerate(texts, 1):
            list(session.look(version(folder, number, text)))
            log.add({"turned.cu": text.encode()})
        return store.versions(KERNEL, PROBLEM)

    return all_of


@pytest.fixture
def emulator_passes(monkeypatch):
    """Leave out the emulator, which is slow and has other tests."""
    monkeypatch.setattr(watched, "emulate", lambda *words: Emulated(words[1].tile_for(words[2], words[3]), skipped="x"))


def test_without_a_gpu_a_version_has_its_verdict_and_resources_and_no_rate(saved, session, registry):
    versions = saved(session, SOURCE, STAGED.replace("if (i < m && j < n) ", ""))
    first, last = (each.version for each in versions)
    assert (first.by, first.verdict, first.right, first.tile, first.arch) == ("watch", "PASS", True, "H=8", "sm_90a")
    assert last.verdict.startswith("FAIL, ")
    assert last.right is False
    assert first.registers
    assert (first.spill_bytes, first.time_s, first.compared) == (0, None, ())
    assert [each.against_first for each in history_document(KERNEL, PROBLEM, versions).versions] == [None, None]
    assert versions[0].digest == digest_of(sources_of(registry.kernels[KERNEL]))


@pytest.mark.usefixtures("emulator_passes")
def test_the_history_shows_a_diff_for_each_step_and_names_the_compilers_refusal(saved, session):
    versions = saved(session, SOURCE, SOURCE, BROKEN)
    page = list(history_page(history_document(KERNEL, PROBLEM, versions), diff=True))
    assert page[0] == f"{KERNEL} on {PROBLEM}: 3 versions, 0 right"
    assert page[-2] == "version 2 after version 1: the sources are the same"
    assert page[-1].startswith("version 3 after version 2\n--- turned.cu 2\n+++ turned.cu 3\n")
    assert "\n-  if (i < m && j < n) b[j * m + i]" in page[-1]
    assert "\n+  if (i < m && j < n) c[j * m + i]" in page[-1]
    assert versions[2].version.verdict == "FAIL, does not compile"


@pytest.mark.usefixtures("emulator_passes")
def test_on_a_gpu_ratios_within_a_job_have_an_interval_and_others_are_marked(saved, opened, monkeypatch):
    medians = iter([(4e-3, 8e-3), (2e-3, 4e-3, 8e-3), (1e-3, 2e-3, 8e-3)])

    def compared(comparison, current, previous):
        ids = (*comparison.ids[: 1 + bool(previous)], "transpose/cublas.geam")
        columns = {"problem": PROBLEM, "job": "j", "device_name": "Some GPU", "interval_scope": "within-process"}
        return [measured(name, 0.99 * s, s, 1.01 * s, **columns) for name, s in zip(ids, next(medians), strict=True)]

    monkeypatch.setattr(watched, "compare", compared)
    session = opened()
    session.comparison = VersionTiming(KERNEL, PROBLEM, (), (), Budget(0.01))
    versions = saved(session, SOURCE, STAGED, SOURCE)
    document = history_document(KERNEL, PROBLEM, versions)
    _, second, third = (each.against_first for each in document.versions)
    assert (second.in_turn, round(second.ratio)) == (True, 2)
    assert (third.in_turn, round(third.ratio)) == (False, 4)
    assert second.low <= 2 <= second.high
    text = "\n".join(history_page(document, diff=False))
    assert "(not in turn)" in text
    assert "8x [8, 8] cublas.geam" in text
    assert [[(rate.kernel, rate.version) for rate in each.against] for each in document.versions] == [
        [("transpose/cublas.geam", None)],
        [("", 1), ("transpose/cublas.geam", None)],
        [("", 2), ("transpose/cublas.geam", None)],
    ]
