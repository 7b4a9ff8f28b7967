"""Two runs compared case by case."""

import csv
import math

import msgspec
import numpy as np
import pytest

from bench.compare.runs import compare_runs
from bench.measure.measurement import Part
from bench.record.result import Result
from bench.record.store import Run, Store

NUMPY = {"versions": {"numpy": "2.4.5"}, "blas": []}
STEADY = (1.00e-3, 1.001e-3, 0.999e-3, 1.0005e-3, 0.9995e-3)
LOOSE = (1.00e-3, 1.05e-3, 0.96e-3, 1.03e-3, 0.98e-3)


def times(factor, medians=STEADY):
    return tuple(factor * median for median in medians)


def begin(store, run_id, **values):
    run = Run(run_id, {"cpu": "some"}, "2026", ("s",), "", NUMPY, "c0ffee", {"seed": 0})
    store.begin(msgspec.structs.replace(run, **values))


def add(store, run_id, problem, medians=(), status="ok", **values):
    identity = {"run_id": run_id, "suite": "s", "op": "copy", "problem": f"copy/{problem}", "kernel": "copy/a.b"}
    device = {"provider": "a", "device": "cpu", "device_name": "d", "mode": "cold", "threads": 1}
    kind = {"dtype": "f32", "numerics": "exact", "layout": "", "status": status, "reason": ""}
    median = float(np.median(medians)) if medians and status == "ok" else None
    row = Result(**{**identity, **device, **kind, "time_s_median": median, **values})
    store.add(row, {}, [], None, [Part(1, found) for found in medians])


@pytest.fixture
def runs(store):
    """A function that fills runs `base` and `new` with medians (or a status) by problem."""

    def fill(base, new, **values):
        for run_id, rows in (("base", base), ("new", new)):
            begin(store, run_id, **(values if run_id == "new" else {}))
            for problem, found in rows.items():
                if isinstance(found, dict):
                    add(store, run_id, problem, **found)
                else:
                    add(store, run_id, problem, found)
        return store

    return fill


def compared(store, fail_slower=None, anyway=False, csv_path=None, base="base", new="new", margin=0.02):
    return compare_runs((store, base), (store, new), margin, fail_slower, anyway, csv_path)


def verdicts(store, tmp_path, **options):
    compared(store, csv_path=tmp_path / "all.csv", **options)
    with (tmp_path / "all.csv").open(newline="") as lines:
        return {row["problem"].partition("/")[2]: row for row in csv.DictReader(lines)}


def test_each_verdict_has_its_case(runs, tmp_path):
    base = {"m1": STEADY, "m2": STEADY, "m3": STEADY, "m4": LOOSE}
    new = {"m1": times(1.001), "m2": times(1.05), "m3": times(0.9), "m4": times(1.03, LOOSE)}
    store = runs(base, new)
    found = verdicts(store, tmp_path)
    assert {name: row["verdict"] for name, row in found.items()} == {
        "m1": "same",
        "m2": "slower",
        "m3": "faster",
        "m4": "unclear",
    }
    assert compared(store)[0].splitlines()[-1] == "4 cases: 1 slower, 1 faster, 1 same, 1 unclear"


def test_csv_holds_times_ratio_interval_and_both_p_values(runs, tmp_path):
    store = runs({"m1": STEADY, "m2": STEADY}, {"m1": times(1.05), "m2": times(1.001)})
    row = verdicts(store, tmp_path)["m1"]
    assert float(row["base_time_s_median"]) == 1e-3
    assert float(row["ratio"]) == pytest.approx(1.05)
    assert float(row["ratio_ci95_low"]) < 1.05 < float(row["ratio_ci95_high"])
    assert float(row["p_holm"]) == pytest.approx(2 * float(row["p"]))
    assert (row["base_processes"], row["new_processes"], row["machines"]) == ("5", "5", "same")


def test_swapping_the_runs_turns_every_verdict_round(runs, tmp_path):
    store = runs({"m1": STEADY, "m2": STEADY, "m3": STEADY}, {"m1": times(1.019), "m2": times(1.05), "m3": times(0.9)})
    there = verdicts(store, tmp_path)
    back = verdicts(store, tmp_path, base="new", new="base")
    turned = {"slower": "faster", "faster": "slower"}
    assert {name: turned.get(row["verdict"], row["verdict"]) for name, row in there.items()} == {
        name: row["verdict"] for name, row in back.items()
    }


def test_holm_makes_unclear_of_what_one_of_many_shows_by_chance(runs, tmp_path):
    many = {f"m{i}": LOOSE for i in range(2, 40)}
    store = runs({"m1": LOOSE, **many}, {"m1": times(1.07, LOOSE), **many})
    row = verdicts(store, tmp_path)["m1"]
    assert float(row["p"]) < 0.05 < float(row["p_holm"])
    assert (row["verdict"], row["reason"].partition(" by")[0][:2]) == ("unclear", "p ")
    assert row["reason"].endswith("not among 39")


def test_a_wider_margin_calls_more_the_same(runs, tmp_path):
    store = runs({"m1": LOOSE}, {"m1": LOOSE})
    assert verdicts(store, tmp_path)["m1"]["verdict"] == "unclear"
    assert verdicts(store, tmp_path, margin=0.1)["m1"]["verdict"] == "same"


@pytest.mark.parametrize("factor", [0.96, 1 / 0.96])
def test_an_interval_that_leaves_the_margin_on_one_side_is_unclear(runs, tmp_path, factor):
    row = verdicts(runs({"m1": LOOSE}, {"m1": times(factor, LOOSE)}), tmp_path)["m1"]
    assert (float(row["ratio_ci95_low"]) < 1 / 1.02) is not (float(row["ratio_ci95_high"]) > 1.02)
    assert row["verdict"] == "unclear"


@pytest.mark.parametrize("few", [(), (1.5e-3,)])
def test_a_single_process_leaves_a_case_unclear_with_the_remedy(runs, tmp_path, few):
    store = runs({"m1": STEADY}, {"m1": {"medians": few, "time_s_median": 1.5e-3}})
    row = verdicts(store, tmp_path)["m1"]
    assert (row["verdict"], row["ratio"], row["p"]) == ("unclear", "1.5", "")
    assert row["reason"].startswith(f"processes: 5 in BASE, {len(few)} in NEW")
    assert "--processes 5" in row["reason"]


@pytest.mark.parametrize("bad", [math.nan, 0.0, math.inf])
def test_a_median_that_is_no_time_leaves_a_case_unclear(runs, tmp_path, bad):
    row = verdicts(runs({"m1": STEADY}, {"m1": {"medians": (1e-3, bad), "time_s_median": 1e-3}}), tmp_path)["m1"]
    assert (row["verdict"], row["p_holm"]) == ("unclear", "")


@pytest.mark.parametrize("status", ["wrong", "failed", "crashed", "timeout", "mistrusted"])
def test_what_was_ok_and_is_broken_regressed(runs, status):
    store = runs({"m1": STEADY, "m2": STEADY}, {"m1": {"status": status, "reason": "because"}, "m2": STEADY})
    text, fails = compared(store, fail_slower=0.02)
    assert f"regressed: copy/a.b copy/m1 cold t1: ok -> {status}: because" in text
    assert text.endswith("2 cases: 0 slower, 0 faster, 1 same, 0 unclear, 1 regressed")
    assert fails


@pytest.mark.parametrize(("old", "now"), [("wrong", "ok"), ("ok", "unsupported"), ("wrong", "failed")])
def test_other_changes_of_status_are_listed_and_fail_nothing(runs, old, now):
    rows = [{"medians": STEADY if s == "ok" else (), "status": s, "reason": "" if s == "ok" else s} for s in (old, now)]
    text, fails = compared(runs({"m1": rows[0], "m2": STEADY}, {"m1": rows[1], "m2": STEADY}), fail_slower=0.02)
    assert f"copy/a.b copy/m1 cold t1: {old} -> {now}: {now if now != 'ok' else old}" in text
    assert not fails


def test_what_has_no_time_in_either_is_counted(runs):
    bad = {"status": "unsupported", "reason": "f64"}
    text, _ = compared(runs({"m1": bad, "m2": bad, "m3": STEADY}, {"m1": bad, "m2": bad, "m3": STEADY}))
    assert "no time: 2 unsupported in both" in text
    assert text.endswith("3 cases: 0 slower, 0 faster, 1 same, 0 unclear, 2 untimed")


def test_cases_of_one_run_alone_are_counted(runs):
    text, _ = compared(runs({"m1": STEADY, "m2": STEADY, "m4": STEADY}, {"m0": STEADY, "m2": STEADY}))
    assert text.endswith("1 case: 0 slower, 0 faster, 1 same, 0 unclear; 2 in BASE only; 1 in NEW only")


@pytest.mark.parametrize(("bound", "fails"), [(0.02, True), (0.04, True), (0.06, False)])
def test_it_fails_where_a_case_is_slower_by_more_than_the_bound(runs, bound, fails):
    assert compared(runs({"m1": STEADY}, {"m1": times(1.05)}), fail_slower=bound)[1] is fails


def test_it_does_not_fail_without_a_bound_nor_for_what_is_unclear(runs):
    store = runs({"m1": STEADY, "m2": LOOSE}, {"m1": STEADY, "m2": times(1.03, LOOSE)})
    assert not compared(store, fail_slower=0.001)[1]
    assert not compared(store)[1]


def test_a_bound_is_refused_where_a_case_has_one_process(runs, complaint):
    store = runs({"m1": STEADY, "m2": STEADY}, {"m1": STEADY, "m2": (1e-3,)})
    line = complaint(lambda: compared(store, fail_slower=0.02))
    assert line.startswith("--fail-slower: 1 of 2 cases have fewer than two processes")
    assert "--processes 5" in line


def test_a_bound_is_refused_where_nothing_was_timed(runs, complaint):
    store = runs({"m1": {"mode": "verify"}}, {"m1": {"mode": "verify"}})
    assert "no case has a time in both" in complaint(lambda: compared(store, fail_slower=0.02))


def test_runs_of_different_machines_are_refused_with_the_facts_that_differ(runs, complaint, tmp_path):
    store = runs({"m1": STEADY}, {"m1": STEADY}, machine={"cpu": "other", "cpus": 4})
    line = complaint(lambda: compared(store))
    assert "different machines: cpu: some -> other; cpus: none -> 4; --anyway" in line
    text, _ = compared(store, anyway=True)
    assert "DIFFERENT MACHINES: cpu: some -> other" in text.splitlines()
    assert verdicts(store, tmp_path, anyway=True)["m1"]["machines"] == "cpu: some -> other; cpus: none -> 4"


def test_cases_of_different_devices_are_refused_too(runs, complaint):
    store = runs({"m1": STEADY}, {"m1": {"medians": STEADY, "device_name": "e"}})
    assert "different devices: d in BASE, e in NEW; --anyway" in complaint(lambda: compared(store))
    assert "DIFFERENT MACHINES: device: d -> e" in compared(store, anyway=True)[0].splitlines()


def test_what_may_vary_is_named_and_not_refused(runs):
    environment = {"versions": {"numpy": "2.4.6"}, "blas": ["openblas"]}
    store = runs({"m1": STEADY}, {"m1": STEADY}, environment=environment, git_commit="beef", plan={"seed": 1})
    lines = compared(store)[0].splitlines()
    assert [line for line in lines if line.startswith("differs: ")] == [
        "differs: git_commit: c0ffee -> beef",
        "differs: seed: 0 -> 1",
        "differs: blas: [] -> ['openblas']",
        "differs: numpy: 2.4.5 -> 2.4.6",
    ]


def test_runs_without_a_common_case_are_refused(runs, complaint):
    line = complaint(lambda: compared(runs({"m1": STEADY}, {"m2": STEADY})))
    assert "no case in common: 1 in BASE, 1 in NEW" in line


def test_a_run_is_not_compared_with_itself(runs, complaint):
    assert "are both run base" in complaint(lambda: compared(runs({"m1": STEADY}, {}), new="ba"))


def test_an_unknown_run_is_one_line(runs, complaint):
    assert complaint(lambda: compared(runs({}, {}), base="r9")).startswith("run 'r9': is not a run of")


def test_base_may_lie_in_another_store(runs, tmp_path):
    store, other = runs({"m1": STEADY}, {"m1": times(1.05)}), Store(tmp_path / "other.db")
    begin(other, "older")
    add(other, "older", "m1", STEADY)
    text, fails = compare_runs((other, "old"), (store, "new"), 0.02, 0.02, False, None)
    assert "BASE older" in text
    assert fails
    other.close()


def test_the_worst_stand_first_and_the_rest_is_counted(runs):
    base = {f"m{i}": STEADY for i in range(60)}
    new = {f"m{i}": times(1.1 + i / 100) for i in range(58)} | {"m58": times(0.8), "m59": STEADY}
    lines = compared(runs(base, new))[0].splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("---"))
    assert [line.split()[1] for line in lines[head + 1 : head + 4]] == ["copy/m57", "copy/m56", "copy/m55"]
    assert "and 8 slower, 1 faster more; --csv FILE has all" in lines
    assert not any("copy/m59" in line for line in lines)


def test_what_is_certainly_slower_stands_before_what_may_be_much_slower(runs):
    wild = (1e-3, 9e-3, 2e-3)
    lines = compared(runs({"m1": STEADY, "m2": wild}, {"m1": times(1.05), "m2": times(3, wild)}))[0].splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("---"))
    assert [line.split()[1] for line in lines[head + 1 : head + 3]] == ["copy/m1", "copy/m2"]


def test_the_smallest_difference_that_can_be_found_grows_with_the_number_of_cases(runs):
    store = runs({"m1": LOOSE, "m2": LOOSE}, {"m1": LOOSE, "m2": LOOSE})
    line = next(line for line in compared(store)[0].splitlines() if line.startswith("smallest difference"))
    alone, among = (float(word) for word in line.replace("%", " ").split() if word[0].isdigit() and "." in word)
    assert 5 < alone < among < 12
    assert line.endswith("among 2 (Holm)")


def test_more_cases_than_are_tested_at_a_time_keep_their_own_p_values(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("bench.compare.cases.CHUNK", 3)
    factors = [1 + i / 10 for i in range(10)]
    store = runs({f"m{i}": STEADY for i in range(10)}, {f"m{i}": times(f) for i, f in enumerate(factors)})
    found = verdicts(store, tmp_path)
    assert [float(found[f"m{i}"]["ratio"]) for i in range(10)] == pytest.approx(factors)
    assert [found[f"m{i}"]["verdict"] for i in range(10)] == ["same"] + ["slower"] * 9
