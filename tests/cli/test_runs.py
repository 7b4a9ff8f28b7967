"""The command `runs`, runs by name, runs that are partial, and rows that options select."""

import csv
import io
import json
import sqlite3
from pathlib import Path

import pytest

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.record.store import Store
from support.compared import STEADY, add, begin

PARTIAL = "partial: 2 of 3 cases; `kernelmark run --resume 20260201-new` goes on"


def test_runs_are_listed_newest_first_with_name_cases_and_noise(called, two_runs):
    printed = called("runs", "--db", two_runs).printed
    assert [line.split()[0] for line in printed.splitlines()[2:]] == ["20260201-new", "20260101-old"]
    new, old = (" ".join(line.split()) for line in printed.splitlines()[2:])
    assert new == "20260201-new s 2026-02-01 10:00 2 of 3 1 of 1 d"
    assert old == "20260101-old base s 2026-01-01 10:00 2 of 2 1 of 2 d"


def test_of_many_suites_two_are_listed(called, store):
    begin(store, "r", suites=("a", "b", "c", "d"))
    path = str(store.path)
    store.close()
    assert "a, b and 2 more " in called("runs", "--db", path).out


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


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--delete", "unheard-of"), "run 'unheard-of': is not a run of"),
        (("--delete", "2026"), "begins more than one run of"),
        (("--prune", "yesterday"), "is 'yesterday', expected an age such as 12h, 30d or 8w, or a past date"),
        (("--prune", "0d"), "is '0d', expected an age"),
        (("--prune", "9999-01-01"), "is '9999-01-01', expected an age"),
        (("--prune", "99999999999w"), "is '99999999999w', expected an age"),
        (("--prune", "3d", "--delete", "base"), "--delete and --prune: each chooses the runs to remove; take one"),
    ],
)
def test_nonsense_is_refused_in_one_line_and_removes_nothing(called, two_runs, words, found):
    line = called("runs", *words, "--db", two_runs).refusal
    assert found in line
    assert len(json.loads(called("runs", "--json", "--db", two_runs).out)) == 2


def test_a_run_that_is_being_measured_is_not_removed_nor_any_that_was_named_beside_it(called, two_runs):
    with held_run(Path(two_runs), "20260201-new", ""):
        done = called("runs", "--prune", "1d", "--db", two_runs)
    assert done.status == 2
    assert "run-20260201-new: is being measured by process " in done.err
    assert len(json.loads(called("runs", "--json", "--db", two_runs).out)) == 2


@pytest.mark.parametrize("words", [("show",), ("export",), ("compare", "20260201"), ("crossover", "copy/m3n5/f32")])
def test_a_run_is_taken_by_the_beginning_of_its_name(called, two_runs, words):
    done = called(*words, "bas", "--db", two_runs)
    assert done.status == 0
    assert "20260101-old" in done.out


def test_show_and_export_say_when_a_run_is_partial_and_else_nothing(called, two_runs):
    assert called("show", "--db", two_runs).out.splitlines()[-1] == PARTIAL
    assert called("export", "--db", two_runs).err == f"{PARTIAL}\n"
    assert "partial" not in called("show", "base", "--db", two_runs).out
    assert called("export", "base", "--db", two_runs).err == ""


@pytest.mark.long
def test_report_says_when_a_run_is_partial(called, two_runs):
    assert PARTIAL in called("report", "--out", "page", "--db", two_runs).out.splitlines()


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
    exported = csv.DictReader(io.StringIO(called("export", *words, "--db", two_runs).out))
    assert [row["problem"] for row in exported] == problems
    printed = json.loads(called("show", *words, "--json", "--db", two_runs).out)
    assert [row["problem"] for row in printed["results"]] == problems
    assert printed["run"]["cases_done"] == 2
    shown = called("show", *words, "--db", two_runs).out
    assert [problem in shown for problem in ("copy/m3n5/f32", "copy/m9n5/f32")] == [
        problem in problems for problem in ("copy/m3n5/f32", "copy/m9n5/f32")
    ]


def test_compare_and_crossover_look_at_the_selected_rows_alone(called, two_runs):
    done = called("compare", "base", "20260201", "--problem", "*m3*", "--db", two_runs)
    assert done.out.splitlines()[-1].startswith("1 case: ")
    words = ("crossover", "copy/m3n5/f32", "base", "--db", two_runs)
    assert json.loads(called(*words, "--json").out)["rows"][0]["fastest"] == "copy/a.b"
    assert json.loads(called(*words, "--json", "--kernels", "copy/c.*").out)["rows"] == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("show", "--op", "conv"), "--op conv: selects no row of run 20260201-new; `kernelmark show 20260201-new`"),
        (("export", "--kernels", "none", "--status", "ok"), "--kernels none --status ok: selects no row of run 2026"),
        (("show", "--status", "fine"), "'fine' is not one of 'ok'"),
        (("show", "--json", "--row", "m3"), "--json: prints all rows"),
        (("compare", "base", "20260201", "--op", "conv"), "the runs have no case in common: 0 in BASE, 0 in NEW"),
    ],
)
def test_a_selection_of_nothing_is_refused_in_one_line(called, two_runs, words, found):
    assert found in called(*words, "--db", two_runs).refusal
