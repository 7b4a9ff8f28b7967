"""Kernels with tiles in the commands: run, verified, exported, resumed and inspected under their names."""

import csv
import io
import json

import pytest

PROBLEM = "transpose/m96n70/f32/out"
PLAIN, PINNED = "transpose/numba.blocked", "transpose/numba.blocked@RUN=512,STREAM=0"


def select(*globs):
    return [word for glob in globs for word in ("--kernels", glob)]


def rows_of(called, *words):
    return list(csv.DictReader(io.StringIO(called("export", "--format", "csv", *words).printed)))


def test_a_kernel_with_a_tile_has_a_row_of_its_own_with_the_whole_tile(called):
    asked = select(PLAIN, "transpose/numba.bl*@STREAM=0,RUN=512")
    done = called("verify", PROBLEM, *asked, "--threads", "1")
    assert done.status == 0, done.err
    rows = {row["kernel"]: row for row in rows_of(called)}
    assert set(rows) == {PLAIN, PINNED}
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert json.loads(rows[PINNED]["tunables"]) == {"RUN": 512, "DOWN": 0, "STREAM": 0}
    assert json.loads(rows[PLAIN]["tunables"]) == {"RUN": 0, "DOWN": 0, "STREAM": 1}
    assert {row["kernel"] for row in rows_of(called, "--kernels", PLAIN)} == {PLAIN, PINNED}
    assert {row["kernel"] for row in rows_of(called, "--kernels", "*@RUN=512*")} == {PINNED}


@pytest.mark.long
def test_a_run_that_goes_on_measures_no_tile_twice(called):
    limit = ("--max-time", "0.02", "--no-ceilings", "--threads", "1")
    done = called("run", PROBLEM, *select(PLAIN, PINNED), *limit)
    assert done.status == 0, done.err
    run_id = done.out.split()[1]
    before = rows_of(called, run_id)
    assert called("run", "--resume", run_id).status == 0
    assert rows_of(called, run_id) == before
    assert [row["kernel"] for row in before] == [PLAIN, PINNED]


def test_a_tile_that_cannot_be_for_a_problem_is_unsupported_with_the_reason(called):
    called("verify", PROBLEM, *select("transpose/numba.blocked@DOWN=4096"), "--threads", "1")
    (row,) = rows_of(called)
    assert row["status"] == "unsupported"
    assert row["reason"].endswith("4096 rows are all of m = 96, as 0 is")


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("transpose/numba.blocked@RUM=512", "RUM is unknown, expected one of DOWN, RUN, STREAM; did you mean RUN?"),
        (
            "transpose/numba.blocked@RUN=500",
            "RUN is 500, transpose/numba.blocked has 0, 64, 128, 256, 512, 1024, 2048, 4096",
        ),
        ("transpose/numpy.out@RUN=512", "transpose/numpy.out has no tunables; leave the tile out"),
        ("transpose/numba.blocked@RUN", "expected NAME=VALUE, several separated by commas: T=32"),
    ],
)
def test_a_tile_that_a_kernel_has_not_is_refused_before_anything_runs(called, glob, said):
    for command in ("run", "verify"):
        assert called(command, PROBLEM, *select(glob)).refusal == f"kernelmark: {glob}: {said}"
    assert said in called("inspect", glob, PROBLEM).refusal


def test_the_space_of_a_kernel_is_shown_with_what_is_refused(called):
    printed = called("inspect", "transpose/numba.blocked", "transpose/m300n70/f32/out").printed
    first, *table = printed.splitlines()
    assert first == (
        "transpose/m300n70/f32/out: 128 tiles, 40 valid; a run takes transpose/numba.blocked@RUN=64,DOWN=0,STREAM=1"
    )
    assert [line.split()[0] for line in table[2:]] == ["64", "24"]


def test_a_space_too_large_to_walk_through_is_shown_by_an_estimate(called):
    printed = called("inspect", "gemm/cuda.streamk", "gemm/m512n512k512/f32/NT", "--arch", "sm_75").printed
    assert "3,110,400 tiles, about " in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("transpose/numba.blocked",), "expected a problem after the kernel"),
        (("transpose/numba.blokced", PROBLEM), "did you mean transpose/numba.blocked?"),
        (("transpose/numba.blocked", "transpose/m96n70/f32/in"), "has no in path; it has out"),
        (("transpose/numba.blocked@DOWN=4096", PROBLEM), "4096 rows are all of m = 96"),
    ],
)
def test_what_cannot_be_inspected_is_refused_in_one_line(called, words, said):
    assert said in called("inspect", *words).refusal
