"""How `watch` reads a source, judges it, and shows the result."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmark.bench.cli import watch
from kernelmark.bench.emulator.report import Diagnostic, Thread
from kernelmark.bench.emulator.sweep import Defect, EmulatedCase
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.tune.watch.emulator import Emulated, bugs, verdict
from kernelmark.bench.tune.watch.session import resource_table, time_table
from kernelmark.bench.tune.watch.versions import contents, saves
from support.tuning import row


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


def test_a_named_pipe_is_refused_and_one_among_the_headers_is_left_out(tmp_path: Path, complaint: Any) -> None:
    (tmp_path / "a.cu").write_text("one")
    os.mkfifo(tmp_path / "b.cuh")
    assert contents(tmp_path / "a.cu") == {"a.cu": b"one"}
    os.mkfifo(tmp_path / "c.cu")
    found = f"{tmp_path}/c.cu: is a named pipe, expected a file"
    assert complaint(lambda: contents(tmp_path / "c.cu")) == found
    assert complaint(lambda: next(saves(tmp_path / "c.cu"))) == found


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
    found = tuple(Defect(one, order, report("out-of-bounds", 7)) for one, order in at)
    text = verdict(Emulated(BIG, (case(3), case(5), case(9), case(9, SMALL)), found)).splitlines()
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
    (bug,) = bugs([Defect(case(5), "forward", report(*one)) for one in (("uninitialised-read", 9), ("race", 7, 9))])
    first, second = str(bug).splitlines()
    assert first.startswith("a.cu:7: race")
    assert second.startswith("  also a.cu:9: uninitialised-read")


def test_a_wrong_result_is_a_bug_of_its_own_only_where_no_report_explains_it(case):
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
def test_verdicts_are_coloured_on_a_terminal_alone(monkeypatch, capsys, wanted):
    monkeypatch.setattr("kernelmark.bench.cli.watch.is_wanted", lambda stream, environ: wanted)
    watch._print("FAIL: 1 report\n  PASS  T=32")
    coloured = "\033[31m\033[1mFAIL\033[0m: 1 report\n  \033[32m\033[1mPASS\033[0m  T=32\n"
    assert capsys.readouterr().out == (coloured if wanted else "FAIL: 1 report\n  PASS  T=32\n")


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
    assert table[5].endswith(" 1.00x [1, 1] tie")
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


def test_both_tables_fit_the_terminal(registry, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    refused = Measurement(
        kernel="gemm/cublas.gemmex_tf32", status="unsupported", reason="no such thing in this library"
    )
    rows = [measured("gemm/cuda.warptile", 1e-3), measured("gemm/cublas.gemmex_tf32_colmajor", 2e-3), refused]
    launches = [row(entry=f"conv_{name}<8,N,T>", limiter="shared memory") for name in ("columns", "product", "sums")]
    problem = registry.problem("gemm/m100n100k100/f32/NT")
    shown = time_table(rows, {}, problem) + "\n" + resource_table(launches, [])
    assert max(map(len, shown.splitlines())) <= 60
