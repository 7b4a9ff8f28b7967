"""The verdict on each case of two runs."""

import math

import pytest

from support.compared import LOOSE, STEADY, compared, times, verdicts


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
    text, _ = compared(store)
    assert text.count("1 case cannot be tested; `kernelmark run --processes 5` measures in several") == 1


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


def test_more_cases_than_are_tested_at_a_time_keep_their_own_p_values(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.compare.cases.CHUNK", 3)
    factors = [1 + i / 10 for i in range(10)]
    store = runs({f"m{i}": STEADY for i in range(10)}, {f"m{i}": times(f) for i, f in enumerate(factors)})
    found = verdicts(store, tmp_path)
    assert [float(found[f"m{i}"]["ratio"]) for i in range(10)] == pytest.approx(factors)
    assert [found[f"m{i}"]["verdict"] for i in range(10)] == ["same"] + ["slower"] * 9
