"""What `kernelmark watch` makes of the emulator's findings: a report a bug, and each tile by its name."""

from types import SimpleNamespace

import pytest

from kernelmark.bench.cli import watch
from kernelmark.bench.emulator.report import Diagnostic, Thread
from kernelmark.bench.emulator.sweep import Defect, EmulatedCase
from kernelmark.bench.tune.watch.emulator import Emulated, bugs, verdict

WHO = Thread((0, 0, 0), (1, 0, 0))
BIG, SMALL = SimpleNamespace(T=32), SimpleNamespace(T=16)


@pytest.fixture
def case(registry):
    """Return a function that makes a case of a size under a tile."""
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
