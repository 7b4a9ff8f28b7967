"""Comparing two runs: paired cases, variants, statistics, and the tables."""

import json
import math
import re
from itertools import product

import numpy as np
import pytest

from kernelmark.bench.compare.cases import Side
from kernelmark.bench.compare.runs import Gate, compare_runs
from kernelmark.bench.compare.variant_ratios import compared_pairs
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.anonymity import hashed
from kernelmark.bench.report.welch import detectable, holm, welch
from support.compared import LOOSE, STEADY, add, begin, compared, times, verdicts
from support.rows import BEYOND, DISTURBED, put
from support.texts import text_of


@pytest.fixture
def runs(store):
    """Return a function that fills runs `base` and `new` with medians (or a status) by problem."""

    def fill(base, new, **values):
        for run_id, rows in (("base", base), ("new", new)):
            begin(store, run_id, **(values if run_id == "new" else {}))
            for problem, medians in rows.items():
                add(store, run_id, problem, **(medians if isinstance(medians, dict) else {"medians": medians}))
        return store

    return fill


def test_each_verdict_has_a_case_and_swapped_runs_reverse_it(runs, tmp_path):
    base = {"m1": STEADY, "m2": STEADY, "m3": STEADY, "m4": LOOSE}
    store = runs(base, {"m1": times(1.001), "m2": times(1.05), "m3": times(0.9), "m4": times(1.03, LOOSE)})
    for swapped, words in (
        ({}, "same slower faster unclear"),
        ({"base": "new", "new": "base"}, "same faster slower unclear"),
    ):
        assert [row["verdict"] for row in verdicts(store, tmp_path, **swapped).values()] == words.split()
    assert compared(store)[0].splitlines()[-1] == "4 cases: 1 slower, 1 faster, 1 same, 1 unclear"


def test_csv_holds_times_ratio_interval_and_both_p_values(runs, tmp_path):
    store = runs({"m1": STEADY, "m2": STEADY}, {"m1": times(1.05), "m2": times(1.001)})
    row = verdicts(store, tmp_path)["m1"]
    assert float(row["base_time_s_median"]) == 1e-3
    assert float(row["ratio"]) == pytest.approx(1.05)
    assert float(row["ratio_ci95_low"]) < 1.05 < float(row["ratio_ci95_high"])
    assert float(row["p_holm"]) == pytest.approx(2 * float(row["p"]))
    assert (row["base_processes"], row["new_processes"], row["machines"]) == ("5", "5", "same")


def test_a_small_difference_of_one_case_among_many_is_unclear_after_holm(runs, tmp_path):
    many = {f"m{i}": LOOSE for i in range(2, 40)}
    row = verdicts(runs({"m1": LOOSE, **many}, {"m1": times(1.07, LOOSE), **many}), tmp_path)["m1"]
    assert float(row["p"]) < 0.05 < float(row["p_holm"])
    assert (row["verdict"], row["reason"].partition("(")[0]) == ("unclear", "significant alone ")
    assert row["reason"].endswith("not after correction for 39 cases")


def test_a_wider_margin_calls_more_the_same(runs, tmp_path):
    store = runs({"m1": LOOSE}, {"m1": LOOSE})
    assert verdicts(store, tmp_path)["m1"]["verdict"] == "unclear"
    assert verdicts(store, tmp_path, margin=0.1)["m1"]["verdict"] == "same"


@pytest.mark.parametrize("factor", [0.96, 1 / 0.96])
def test_an_interval_that_leaves_the_margin_on_one_side_is_unclear(runs, tmp_path, factor):
    row = verdicts(runs({"m1": LOOSE}, {"m1": times(factor, LOOSE)}), tmp_path)["m1"]
    assert (float(row["ratio_ci95_low"]) < 1 / 1.02) is not (float(row["ratio_ci95_high"]) > 1.02)
    assert row["verdict"] == "unclear"


@pytest.mark.parametrize("medians", [(), (1.5e-3,)])
def test_a_single_process_leaves_a_case_unclear_with_the_remedy(runs, tmp_path, medians):
    store = runs({"m1": STEADY}, {"m1": {"medians": medians, "time_s_median": 1.5e-3}})
    row = verdicts(store, tmp_path)["m1"]
    assert (row["verdict"], row["ratio"], row["p"]) == ("unclear", "1.5", "")
    assert row["reason"].startswith(f"processes: 5 in BASE, {len(medians)} in NEW")
    text, _ = compared(store)
    remedy = "1 case cannot be tested; `kernelmark run --processes 5` measures in several processes"
    assert text.count(remedy) == 1


@pytest.mark.parametrize("status", ["wrong", "failed", "crashed", "timeout", "mistrusted"])
def test_a_case_that_was_ok_and_is_broken_has_regressed(runs, status):
    store = runs({"m1": STEADY, "m2": STEADY}, {"m1": {"status": status, "reason": "because"}, "m2": STEADY})
    text, fails = compared(store, fail_slower=0.02)
    assert fails
    assert f"regressed: copy/a.b copy/m1 cold t1: ok -> {status}: because" in text
    assert text.endswith("2 cases: 0 slower, 0 faster, 1 same, 0 unclear, 1 regressed")


@pytest.mark.parametrize(("old", "now"), [("wrong", "ok"), ("ok", "unsupported"), ("ok", "oom"), ("wrong", "failed")])
def test_other_changes_of_status_are_listed_and_fail_if_the_case_was_ok(runs, old, now):
    rows = [{"medians": STEADY if s == "ok" else (), "status": s, "reason": "" if s == "ok" else s} for s in (old, now)]
    store = runs({"m1": rows[0], "m2": STEADY}, {"m1": rows[1], "m2": STEADY})
    text, fails = compared(store, fail_slower=0.02)
    assert f"copy/a.b copy/m1 cold t1: {old} -> {now}: {now if now != 'ok' else old}" in text
    assert fails is (old == "ok")
    assert not compared(store, fail_slower=0.02, allow_missing=True)[1]


def test_a_missing_case_fails_unless_this_is_allowed(runs):
    store = runs({"m1": STEADY, "m2": STEADY, "m3": {"status": "oom"}}, {"m0": STEADY, "m1": STEADY})
    text, fails = compared(store, fail_slower=0.02)
    assert fails
    missing = "missing or no longer `ok` in NEW: 1 case: copy/a.b copy/m2 cold t1"
    assert text.startswith(f"FAILS: {missing}; --allow-missing allows this")
    text, fails = compared(store, fail_slower=0.02, allow_missing=True)
    assert not fails
    assert text.endswith("1 case: 0 slower, 0 faster, 1 same, 0 unclear; 2 in BASE only; 1 in NEW only")


@pytest.mark.parametrize(
    ("new", "bound", "words"),
    [
        (STEADY, 0.02, ""),
        (LOOSE, 0.2, ""),
        (
            LOOSE,
            0.03,
            "cannot detect 3 % here; the smallest detectable slowdown is 7.5 % (median of 2 cases); more processes "
            "detect smaller ones",
        ),
        (times(1.03, LOOSE), 0.02, "cannot detect 2 % here; "),
        (times(1.0495), 0.05, "2 cases may be slower by more than 5 %: unclear"),
    ],
)
def test_a_gate_first_names_what_it_cannot_detect_and_fails_on_request(runs, new, bound, words):
    store = runs({"m1": STEADY, "m2": STEADY}, {"m1": new, "m2": new})
    text, fails = compared(store, fail_slower=bound)
    assert not fails
    assert (words == "") is text.startswith("BASE base")
    assert words in " ".join(text.split("\n\n")[0].split())
    text, fails = compared(store, fail_slower=bound, unclear=True)
    assert (fails, "FAILS: unclear (--fail-unclear)" in text) == (words != "", words != "")


def test_disturbed_times_are_marked(runs, tmp_path):
    store = runs({"m1": STEADY}, {"m1": {"medians": times(1.2), "disturbed": DISTURBED}})
    line = next(line for line in compared(store)[0].splitlines() if " slower" in line and "ms" in line)
    assert ("~1.20 ms" in line, "~1.00 ms" in line) == (True, False)
    row = verdicts(store, tmp_path)["m1"]
    assert (row["base_disturbed"], row["new_disturbed"]) == ("", DISTURBED)


def test_a_narrow_terminal_leaves_out_p_and_keeps_the_times(runs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text, _ = compared(runs({"m1024n2048k26752/f32/NT": STEADY}, {"m1024n2048k26752/f32/NT": times(1.02, LOOSE)}))
    assert "1.02 ms" in text
    assert "left out to fit: p (Holm)" in text


def test_more_cases_than_are_tested_at_once_keep_their_own_results(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.compare.cases.CHUNK", 3)
    factors = [1 + i / 10 for i in range(10)]
    store = runs({f"m{i}": STEADY for i in range(10)}, {f"m{i}": times(f) for i, f in enumerate(factors)})
    by_problem = verdicts(store, tmp_path)
    assert [float(by_problem[f"m{i}"]["ratio"]) for i in range(10)] == pytest.approx(factors)
    assert [by_problem[f"m{i}"]["verdict"] for i in range(10)] == ["same"] + ["slower"] * 9


VERIFIED = {"m1": {"mode": "verify"}}


@pytest.mark.parametrize(
    ("base", "new", "options", "refusal"),
    [
        (VERIFIED, VERIFIED, {"fail_slower": 0.02}, "--fail-slower: no case has a time in both runs"),
        (
            {"m1": STEADY, "m2": STEADY},
            {"m1": STEADY, "m2": STEADY[:1]},
            {"fail_slower": 0.02},
            "--fail-slower: 1 of 2 cases have fewer than two processes",
        ),
        ({"m1": STEADY}, {"m2": STEADY}, {}, "the runs have no case in common: 1 in BASE, 1 in NEW"),
        ({"m1": STEADY}, {}, {"new": "base"}, "BASE and NEW are both run base"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(runs, complaint, base, new, options, refusal):
    assert complaint(lambda: compared(runs(base, new), **options)).startswith(refusal)


@pytest.mark.parametrize(
    ("row", "facts", "refusal", "differing"),
    [
        ({}, {"machine": {"cpu": "other", "cpus": 4}}, "machines: {}", "cpu: some -> other; cpus: none -> 4"),
        ({"device_name": "e"}, {}, "devices: d in BASE, e in NEW", "device: d -> e"),
    ],
)
def test_runs_of_different_machines_or_devices_are_refused(runs, complaint, tmp_path, row, facts, refusal, differing):
    store = runs({"m1": STEADY}, {"m1": {"medians": STEADY, **row}}, **facts)
    assert f"different {refusal.format(differing)}; --anyway" in complaint(lambda: compared(store))
    lines = compared(store, anyway=True)[0].splitlines()
    assert {f"DIFFERENT MACHINES: {fact}" for fact in differing.split("; ")} <= {*lines}
    assert verdicts(store, tmp_path, anyway=True)["m1"]["machines"] == differing


@pytest.mark.parametrize(
    ("name", "now", "alike"),
    [
        ("memory_bytes", 2**34 - 20480, True),
        ("memory_bytes", 2**34 * 0.98, False),
        ("python", "3.11.9", True),
        ("python", "3.12.7", False),
        ("system", "Linux-6.8.0-47-generic-x86_64-with-glibc2.36", True),
        ("system", "Linux-6.9.0-45-generic-x86_64-with-glibc2.36", False),
        ("system", "Linux-6.8.0-45-generic-x86_64-with-glibc2.39", False),
        ("cpus", 3, False),
    ],
)
def test_patch_releases_and_a_hundredth_of_the_memory_make_no_other_machine(store, complaint, name, now, alike):
    system = "Linux-6.8.0-45-generic-x86_64-with-glibc2.36"
    machine = {"memory_bytes": 2**34, "python": "3.11.7", "system": system, "cpus": 2}
    begin(store, "base", machine=machine)
    begin(store, "new", machine=machine | {name: now})
    for run_id in ("base", "new"):
        add(store, run_id, "m1", STEADY)
    difference = f"{name}: {machine[name]} -> {now}"
    if alike:
        assert f"differs: {difference}" in " ".join(compared(store)[0].split())
    else:
        assert f"on different machines: {difference}; --anyway" in complaint(lambda: compared(store))


def test_settings_that_may_differ_are_named_and_not_refused(runs):
    environment = {"versions": {"numpy": "2.4.6"}, "blas": ["openblas"]}
    plan = {"seed": 1, "suites": ["a", "b"], "suite_digests": ["c0", "ff"], "share_gpu": False, "tiles": []}
    store = runs({"m1": STEADY}, {"m1": STEADY}, environment=environment, git_commit="beef", plan=plan)
    lines = compared(store)[0].splitlines()
    assert [line for line in lines if line.startswith("differs: ")] == [
        "differs: git_commit: c0ffee -> beef",
        "differs: seed: 0 -> 1",
        "differs: blas: none -> openblas",
        "differs: numpy: 2.4.5 -> 2.4.6",
        "differs: suites: none -> a, b",
    ]


def test_other_hosts_and_gpus_of_one_model_are_named_and_not_refused(store):
    begin(store, "base")
    begin(store, "new")
    places = {"m1": (("a", "GPU-1"), ("b", "GPU-2")), "m2": (("c", ""), ("b", "")), "m3": (("", ""), ("b", "GPU-2"))}
    for problem, sides in places.items():
        for run_id, (host, device_uuid) in zip(("base", "new"), sides, strict=True):
            add(store, run_id, problem, STEADY, host=host, device_uuid=device_uuid)
    lines = [line for line in compared(store)[0].splitlines() if line.startswith("differs: ")]
    a, b, c, gpu_1, gpu_2 = map(hashed, ["host"] * 3 + ["uuid"] * 2, ["a", "b", "c", "GPU-1", "GPU-2"])
    assert lines == [f"differs: host: {', '.join(sorted((a, c)))} -> {b}", f"differs: device_uuid: {gpu_1} -> {gpu_2}"]


def test_base_may_be_in_another_store(runs, tmp_path):
    store, other = runs({"m1": STEADY}, {"m1": times(1.05)}), Store(tmp_path / "other.db")
    begin(other, "older")
    add(other, "older", "m1", STEADY)
    text, fails = compare_runs((other, "old"), (store, "new"), 0.02, Gate(0.02), False, None)
    assert "BASE older" in text
    assert fails
    other.close()


def test_runs_whose_kernels_had_different_tuned_tiles_are_refused_without_anyway(store, complaint):
    tile = {"kernel": "copy/a.b", "problem": "copy/m3n5/f32", "threads": 1, "tile": "W=2", "run": "r1"}
    begin(store, "base", plan={"tiles": [tile]})
    begin(store, "same", plan={"tiles": [{**tile, "run": "r2"}]})
    begin(store, "new", plan={"seed": 0})
    for run_id in ("base", "same", "new"):
        add(store, run_id, "m3n5/f32", STEADY)
    assert complaint(lambda: compared(store)) == (
        "runs base and new differ in tuned tiles: only one has copy/a.b@W=2 on copy/m3n5/f32, 1 threads; --anyway "
        "compares them"
    )
    compared(store, anyway=True)
    compared(store, new="same")


NT, NN = "gemm/m8n8k8/f32/NT", "gemm/m8n8k8/f32/NN"


def add_variant(store, run_id, problem, times, job="j", kernel="gemm/a.b", **more):
    put(store, problem, kernel, taken=times, job=job, run_id=run_id, against=NN if problem == NT else "", **more)


def drifting(factor, slope):
    """Return samples from a machine that becomes slower, equally for both variants of a round."""
    return [factor * 1e-3 * (1 + slope * i) for i in range(12)]


@pytest.fixture
def drifted(store):
    """Return a store: NT takes as long as NN in BASE and 1.2 times as long in NEW, whose machine is half as fast."""
    for run_id, machine, nt in (("base", 1.0, 1.0), ("new", 2.0, 1.2)):
        begin(store, run_id)
        add_variant(store, run_id, NT, drifting(machine * nt, 0.05))
        add_variant(store, run_id, NN, drifting(machine, 0.05))
    return store


def test_the_change_of_a_pair_is_free_of_a_slowdown_of_both_variants(drifted):
    ((pair),) = compared_pairs(Side(drifted, "base"), Side(drifted, "new"))
    assert (pair.variant.problem, pair.other.problem) == (NT, NN)
    assert (pair.base.median, pair.new.median) == (pytest.approx(1.0), pytest.approx(1 / 1.2))
    assert (pair.change.median, pair.change.side) == (pytest.approx(1 / 1.2), "slower")
    runs = (drifted, "base"), (drifted, "new")
    ((change),) = json.loads(text_of(lambda out: compare_runs(*runs, 0.02, None, False, None, out)))["ratios"]
    assert (change["problem"], change["against"], change["ratio"]) == (NT, NN, pytest.approx(1 / 1.2))


@pytest.mark.parametrize("split", [("base",), ("new",), ("base", "new")])
def test_rows_of_different_jobs_are_no_pair(store, split):
    for run_id in ("base", "new"):
        begin(store, run_id)
        add_variant(store, run_id, NT, drifting(1.0, 0.0), job="j1")
        add_variant(store, run_id, NN, drifting(1.0, 0.0), job="j2" if run_id in split else "j1")
    assert list(compared_pairs(Side(store, "base"), Side(store, "new"))) == []


@pytest.mark.parametrize("added", [(("base", NT), ("new", NT)), (("new", NT), ("new", NN))], ids=["problem", "run"])
def test_a_kernel_that_lacks_a_variant_in_one_run_is_no_pair(drifted, added):
    for run_id, problem in added:
        add_variant(drifted, run_id, problem, drifting(1.0, 0.0), kernel="gemm/a.other")
    assert len(list(compared_pairs(Side(drifted, "base"), Side(drifted, "new")))) == 1


@pytest.mark.parametrize("beyond", ["base", "new"])
def test_a_kernel_that_used_other_cpus_in_one_run_is_no_pair(drifted, beyond):
    for run_id, problem in product(("base", "new"), (NT, NN)):
        disturbed = BEYOND if run_id == beyond else ""
        add_variant(drifted, run_id, problem, drifting(1.0, 0.0), kernel="gemm/a.other", disturbed=disturbed)
    assert len(list(compared_pairs(Side(drifted, "base"), Side(drifted, "new")))) == 1


def test_the_first_pairs_are_found_in_the_order_of_their_rows(drifted):
    for kernel in ("gemm/a.a", "gemm/a.c"):
        for problem in (NT, NN, "gemm/m8n8k8/f32/TN"):
            add_variant(drifted, "new", problem, drifting(1.0, 0.0), kernel=kernel)
    pairs = drifted.variant_cases("new", 3)
    letters = [tuple(case.split()[0][-1] + case.split()[1][-2:] for case in pair) for pair in pairs]
    assert letters == [("bNT", "bNN"), ("aNT", "aNN"), ("aNT", "aTN")]


def test_pairs_that_are_not_shown_are_counted(store):
    for run_id in ("base", "new"):
        begin(store, run_id)
        for size in range(12):
            add_variant(store, run_id, f"gemm/m{size}n8k8/f32/NN", drifting(1.0, 0.0))
    assert "16 more compared (of at most 200 in NEW)" in compared(store)[0]


def test_a_pair_has_two_lines_of_a_terminal(drifted, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text, _ = compared(drifted)
    lines = text.partition("\nvariants\n")[2].partition("\n\n")[0].splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["NT vs NN on gemm/m8n8k8/f32 by a.b"]
    assert re.fullmatch(r"  1\.00x \[.*\] +0\.833x \[.*\] +0\.833x \[.*\] +slower", lines[-1])


FOUR, TWO = [1.01e-3, 0.98e-3, 1.03e-3, 1.00e-3], [1.10e-3, 1.04e-3]


@pytest.mark.parametrize(("base", "new"), [(FOUR, TWO), (TWO, FOUR), (FOUR, FOUR[::-1]), (TWO, TWO)])
def test_welch_agrees_with_scipy_on_the_logarithms(base, new):
    from scipy.stats import ttest_ind  # here, since each process that collects tests would take a second to import it

    ours, theirs = welch([base], [new]), ttest_ind(np.log(new), np.log(base), equal_var=False)
    low, high = theirs.confidence_interval(0.95)
    assert ours.ratio[0] == pytest.approx(np.exp(np.mean(np.log(new)) - np.mean(np.log(base))))
    assert (ours.p[0], ours.freedom[0]) == (pytest.approx(theirs.pvalue), pytest.approx(theirs.df))
    assert (ours.low[0], ours.high[0]) == pytest.approx((math.exp(low), math.exp(high)))


def test_cases_with_different_numbers_of_processes_are_tested_together_as_alone():
    together, alone = welch([FOUR, TWO, FOUR], [TWO, FOUR, FOUR]), welch([TWO], [FOUR])
    assert [column[1] for column in together] == [column[0] for column in alone]


@pytest.mark.parametrize("bad", [[], [1e-3], [1e-3, math.nan], [1e-3, 0.0], [1e-3, -1e-3], [1e-3, math.inf]])
def test_fewer_than_two_or_invalid_medians_have_no_p_value(bad):
    outcome = welch([bad, FOUR, FOUR], [FOUR, bad, FOUR])
    assert np.isnan(outcome.p).tolist() == [True, True, False]
    assert np.isnan(outcome.low).tolist() == [True, True, False]
    assert math.isnan(welch([bad], [bad]).p[0]), "equal medians without scatter are no evidence"


def test_medians_without_scatter_are_equal_or_certainly_different():
    outcome = welch([[1e-3] * 3] * 2, [[1e-3] * 3, [2e-3] * 3])
    assert outcome.p.tolist() == pytest.approx([1, 0], abs=1e-12)
    assert outcome.low.tolist() == pytest.approx([1, 2])
    assert outcome.high.tolist() == pytest.approx([1, 2])


@pytest.mark.parametrize("time_s", [1e-3, 1 / 3, 7e-7])
def test_equal_medians_of_unlike_numbers_of_processes_do_not_differ_by_rounding(time_s):
    assert welch([[time_s] * n for n in range(2, 12)], [[time_s] * 7] * 10).p.tolist() == [1] * 10


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        # 4 x 0.005, 3 x 0.01, 2 x 0.03, and 1 x 0.04, which must not fall below the one before.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.6, math.nan, 0.02, 0.7], [1, math.nan, 0.06, 1]),  # at most 1; NaN was not tested
        ([], []),
    ],
)
def test_holm_multiplies_the_smallest_by_all_and_never_falls(p, adjusted):
    assert holm(np.array(p)).tolist() == pytest.approx(adjusted, nan_ok=True)


def test_the_detectable_difference_is_that_of_students_t_at_the_stated_power():
    from scipy.stats import t as student

    error = 0.02 * math.sqrt(2 / 5)
    change = float(detectable(np.array([error]), np.array([8.0]))[0])
    assert math.log1p(change) == pytest.approx((student.ppf(0.975, 8) + student.ppf(0.8, 8)) * error)


def test_cases_without_a_time_in_both_runs_are_counted(runs):
    bad = {"status": "unsupported", "reason": "f64"}
    text, _ = compared(runs({"m1": bad, "m2": bad, "m3": STEADY}, {"m1": bad, "m2": bad, "m3": STEADY}))
    assert "no time: 2 unsupported in both" in text
    assert text.endswith("3 cases: 0 slower, 0 faster, 1 same, 0 unclear, 2 untimed")


def test_the_slowest_cases_come_first_certain_ones_before_unclear_ones_and_the_rest_is_counted(runs):
    wild = (1e-3, 9e-3, 2e-3)
    base = {f"m{i}": STEADY for i in range(60)} | {"m60": wild}
    new = {f"m{i}": times(1.1 + i / 100) for i in range(58)} | {"m58": times(0.8), "m59": STEADY, "m60": times(3, wild)}
    lines = compared(runs(base, new))[0].splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("---"))
    assert [line.split()[1] for line in lines[head + 1 : head + 4]] == ["copy/m57", "copy/m56", "copy/m55"]
    assert "and 8 slower, 1 unclear, 1 faster more; --csv FILE has all" in lines
    assert not any("copy/m59" in line for line in lines)


def test_the_smallest_difference_that_can_be_found_grows_with_the_number_of_cases(runs):
    store = runs({"m1": LOOSE, "m2": LOOSE}, {"m1": LOOSE, "m2": LOOSE})
    line = next(line for line in compared(store)[0].splitlines() if line.startswith("smallest difference"))
    alone, among = (float(word) for word in line.replace("%", " ").split() if word[0].isdigit() and "." in word)
    assert 5 < alone < among < 12
    assert line.endswith("corrected for 2 cases (Holm)")
