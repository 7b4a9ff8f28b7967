"""Which runs can be compared, what differs between them, and when a comparison fails."""

import pytest

from kernelmark.bench.compare.runs import compare_runs
from kernelmark.bench.record.store import Store
from support.compared import LOOSE, STEADY, add, begin, compared, times, verdicts


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


def test_runs_whose_kernels_had_different_tuned_tiles_are_refused_unless_told(store, complaint):
    tile = {"kernel": "copy/a.b", "problem": "copy/m3n5/f32", "threads": 1, "tile": "W=2", "run": "r1"}
    begin(store, "base", plan={"tiles": [tile]})
    begin(store, "same", plan={"tiles": [{**tile, "run": "r2"}]})
    begin(store, "new", plan={"seed": 0})
    for run_id in ("base", "same", "new"):
        add(store, run_id, "m3n5/f32", STEADY)
    assert complaint(lambda: compared(store)) == (
        "runs base and new differ in tuned tiles: copy/a.b@W=2 on copy/m3n5/f32, 1 threads is of one alone; --anyway "
        "compares them"
    )
    compared(store, anyway=True)
    compared(store, new="same")
