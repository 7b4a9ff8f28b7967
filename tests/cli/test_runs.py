"""Commands that show runs: the list, selected rows, networks, crossovers, comparisons, and rows with tiles."""

import json
import sqlite3
from pathlib import Path

import pytest

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.record.store import Store
from support.compared import STEADY, add, begin, times
from support.texts import csv_rows

PARTIAL = "partial: 2 of 3 cases; `kernelmark run --resume 20260201-new --db {}` continues it"


def test_runs_are_listed_newest_first_with_name_cases_and_noise(called, two_runs):
    printed = called("runs", "--db", two_runs).printed
    assert [line.split()[0] for line in printed.splitlines()[2:]] == ["20260201-new", "20260101-old"]
    new, old = (" ".join(line.split()) for line in printed.splitlines()[2:])
    assert new == "20260201-new s 2026-02-01 10:00 2 of 3 1 of 1 d"
    assert old == "20260101-old base s 2026-01-01 10:00 2 of 2 1 of 2 d"


def test_of_many_suites_two_are_listed(called, store):
    begin(store, "r", suites=("a", "b", "c", "d"))
    assert "a, b and 2 more " in called("runs", "--db", str(store.path)).out


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("--delete", "base"), ["20260201-new"]),
        (("--delete", "base", "--delete", "20260201"), []),
        (("--prune", "2026-01-15"), ["20260201-new"]),
        (("--prune", "12h"), []),
        (("--prune", "2025-12-31T23:00:00+01:00"), ["20260201-new", "20260101-old"]),
    ],
)
def test_what_is_removed_is_printed_and_leaves_no_row_behind(called, two_runs, words, left):
    printed = called("runs", *words, "--db", two_runs).printed
    number = 2 - len(left)
    assert printed.splitlines()[-1] == f"removed {number} run{'s' * (number != 1)} with {2 * number} rows"
    assert [run["run_id"] for run in json.loads(called("runs", "--json", "--db", two_runs).out)] == left
    with sqlite3.connect(two_runs) as db:
        assert {run_id for (run_id,) in db.execute("SELECT run_id FROM result")} == set(left)


def test_a_store_shrinks_when_a_run_is_removed_and_the_rest_keeps_its_order(called, two_runs, tmp_path):
    store = Store(tmp_path / "results.db")
    begin(store, "big")
    begin(store, "late")
    for m in range(40):
        add(store, "big", f"m{m}n5/f32", STEADY * 300)
    store.close()
    before = (tmp_path / "results.db").stat().st_size
    assert called("runs", "--delete", "big", "--db", two_runs).status == 0
    assert (tmp_path / "results.db").stat().st_size < before / 4
    store = Store(tmp_path / "results.db")
    assert store.run_ids() == ["20260101-old", "20260201-new", "late"]
    store.close()


def test_a_run_that_is_being_measured_is_not_removed_nor_any_that_was_named_beside_it(called, two_runs):
    with held_run(Path(two_runs), "20260201-new", ""):
        line = called("runs", "--prune", "1d", "--db", two_runs).refusal
    assert "run-20260201-new: is being measured by process " in line
    assert len(json.loads(called("runs", "--json", "--db", two_runs).out)) == 2


@pytest.mark.parametrize("words", [("show",), ("export",), ("compare", "20260201"), ("crossover", "copy/m3n5/f32")])
def test_a_run_is_taken_by_the_beginning_of_its_name(called, two_runs, words):
    assert "20260101-old" in called(*words, "bas", "--db", two_runs).printed


def test_show_and_export_say_when_a_run_is_partial_and_else_nothing(called, two_runs):
    partial = PARTIAL.format(two_runs)
    assert " ".join(called("show", "--db", two_runs).out.split()).endswith(f" {partial}")
    assert called("export", "--db", two_runs).err == f"{partial}\n"
    assert "partial" not in called("show", "base", "--db", two_runs).out
    assert called("export", "base", "--db", two_runs).err == ""


@pytest.mark.long
def test_report_says_when_a_run_is_partial(called, two_runs):
    assert PARTIAL.format(two_runs) in called("report", "--out", "page", "--db", two_runs).out.splitlines()


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        ((), ["copy/m3n5/f32", "copy/m9n5/f32"]),
        (("--status", "wrong"), ["copy/m9n5/f32"]),
        (("--status", "wrong", "--status", "ok"), ["copy/m3n5/f32", "copy/m9n5/f32"]),
        (("--problem", "*/m3*"), ["copy/m3n5/f32"]),
        (("--kernels", "copy/a.*", "--kernels", "copy/none", "--op", "copy"), ["copy/m3n5/f32", "copy/m9n5/f32"]),
    ],
)
def test_rows_are_selected_alike_in_tables_csv_and_json(called, two_runs, words, problems):
    exported = csv_rows(called("export", *words, "--db", two_runs).out)
    assert [row["problem"] for row in exported] == problems
    printed = json.loads(called("show", *words, "--json", "--db", two_runs).out)
    assert [row["problem"] for row in printed["results"]] == problems
    assert printed["run"]["cases_done"] == 2
    shown = called("show", *words, "--db", two_runs).out
    assert [problem for problem in ("copy/m3n5/f32", "copy/m9n5/f32") if problem in shown] == problems


def test_compare_and_crossover_look_at_the_selected_rows_alone(called, two_runs):
    done = called("compare", "base", "20260201", "--problem", "*m3*", "--db", two_runs)
    assert done.out.splitlines()[-1].startswith("1 case: ")
    words = ("crossover", "copy/m3n5/f32", "base", "--db", two_runs)
    assert json.loads(called(*words, "--json").out)["rows"][0]["fastest"] == "copy/a.b"
    assert json.loads(called(*words, "--json", "--kernels", "copy/c.*").out)["rows"] == []


SUITE = """
title = "A net of two layers"

[[sweep]]
op = "gemm"
dtype = "f32"
layout = "NT"
part = "forward"
points = [[4, 8, 8], [9, 8, 8]]
count = 3
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory, kernelmark_in):
    folder = tmp_path_factory.mktemp("views")
    (folder / "net.toml").write_text(SUITE)
    options = ("--kernels", "gemm/numpy.matmul", "--mode", "hot", "--max-time", "0.02", "--no-ceilings")
    assert kernelmark_in(folder, "run", "net.toml", *options, "--db", "net.db").returncode == 0
    return folder


@pytest.fixture
def again(measured, called, monkeypatch):
    monkeypatch.chdir(measured)
    return called


def test_show_by_network_sums_the_layers_of_the_latest_run(again):
    printed = again("show", "--by", "network", "--db", "net.db").printed
    (line,) = [line for line in printed.splitlines() if "gemm/numpy.matmul" in line]
    assert line.startswith("net ")
    assert line.endswith("2 of 2")


@pytest.mark.parametrize(
    ("options", "beginning"),
    [(("--by", "network", "--step"), "no share: a share needs times of all"), (("--by", "overlap"), "no overlap: ")],
)
def test_what_a_run_has_no_rows_for_is_said_with_the_command_that_measures_it(again, options, beginning):
    text = " ".join(again("show", *options, "--db", "net.db").printed.split())
    assert beginning in text
    assert "`kernelmark run transfer`" in text


def test_crossover_prints_a_table_and_writes_it_as_csv(measured, again):
    printed = again("crossover", "net.toml", "--db", "net.db", "--csv", "who.csv").printed
    assert "net: 2 of 2 problems timed" in printed
    rows = csv_rows(measured / "who.csv")
    assert [row["problem"] for row in rows] == ["gemm/m4n8k8/f32/NT", "gemm/m9n8k8/f32/NT"]
    assert {row["fastest"] for row in rows} == {"gemm/numpy.matmul"}


@pytest.fixture
def compared(called, store):
    for run_id, factor, processes in (("base", 1, 5), ("slow", 1.05, 5), ("again", 1, 5), ("single", 1, 1)):
        begin(store, run_id)
        add(store, run_id, "m1n1/f32", times(factor)[:processes])
    begin(store, "foreign", machine={"cpu": "other"})
    add(store, "foreign", "m1n1/f32", STEADY)
    return lambda *words: called("compare", *words, "--db", str(store.path))


@pytest.mark.parametrize(
    ("words", "status", "tally"),
    [
        (("base", "slow"), 0, "1 slower, 0 faster, 0 same, 0 unclear"),
        (("slow", "base", "--fail-slower", "2%"), 0, "0 slower, 1 faster, 0 same, 0 unclear"),
        (("base", "slow", "--fail-slower", "2%"), 1, "1 slower, 0 faster, 0 same, 0 unclear"),
        (("base", "slow", "--fail-slower", "6"), 0, "1 slower, 0 faster, 0 same, 0 unclear"),
        (("base", "again", "--fail-slower", "2%", "--fail-unclear"), 0, "0 slower, 0 faster, 1 same, 0 unclear"),
        (("base", "again", "--fail-slower", "0.01%", "--fail-unclear"), 1, "0 slower, 0 faster, 1 same, 0 unclear"),
        (("base", "single"), 0, "0 slower, 0 faster, 0 same, 1 unclear"),
        (("base", "foreign", "--anyway"), 0, "0 slower, 0 faster, 1 same, 0 unclear"),
    ],
)
def test_compare_exits_with_1_for_slower_cases_if_asked_to(compared, words, status, tally):
    done = compared(*words)
    assert (done.status, done.err) == (status, "")
    assert done.out.splitlines()[-1] == f"1 case: {tally}"


def test_compare_writes_every_case_as_csv(compared, tmp_path):
    assert compared("base", "again", "--csv", "deep/all.csv").status == 0
    (row,) = csv_rows(tmp_path / "deep" / "all.csv")
    assert (row["verdict"], row["ratio"], row["p_holm"]) == ("same", "1.0", "1.0")


PROBLEM = "transpose/m96n70/f32/out"
PLAIN, PINNED = "transpose/numba.blocked", "transpose/numba.blocked@RUN=512,STREAM=0"


def rows_of(called, *words):
    return csv_rows(called("export", "--format", "csv", *words).printed)


def test_a_kernel_with_a_tile_has_a_row_of_its_own_with_the_whole_tile(called):
    globs = ("--kernels", PLAIN, "--kernels", "transpose/numba.bl*@STREAM=0,RUN=512")
    done = called("verify", PROBLEM, *globs, "--threads", "1")
    assert done.status == 0, done.err
    rows = {row["kernel"]: row for row in rows_of(called)}
    assert set(rows) == {PLAIN, PINNED}
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert json.loads(rows[PINNED]["tunables"]) == {"RUN": 512, "DOWN": 0, "STREAM": 0}
    assert json.loads(rows[PLAIN]["tunables"]) == {"RUN": 0, "DOWN": 0, "STREAM": 1}
    assert {row["kernel"] for row in rows_of(called, "--kernels", PLAIN)} == {PLAIN, PINNED}
    assert {row["kernel"] for row in rows_of(called, "--kernels", "*@RUN=512*")} == {PINNED}


def test_the_space_of_a_kernel_is_shown_with_what_is_refused_or_by_an_estimate(called):
    printed = called("inspect", "transpose/numba.blocked", "transpose/m300n70/f32/out").printed
    first, *table = printed.splitlines()
    chosen = "transpose/numba.blocked@RUN=64,DOWN=0,STREAM=1"
    assert first == f"transpose/m300n70/f32/out: 128 tiles, 40 valid; a run uses {chosen}"
    assert [line.split()[0] for line in table[2:]] == ["64", "24"]
    printed = called("inspect", "gemm/cuda.streamk", "gemm/m512n512k512/f32/NT", "--arch", "sm_75").printed
    assert "3,110,400 tiles, about " in printed
