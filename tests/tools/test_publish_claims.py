"""The experiments of claims in `make publish`: their order, what goes on, whose rows are judged, what is left."""

import pytest

from kernelmark.bench.claims.prices import load_prices
from kernelmark.bench.claims.views import write_files
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.noise import Noise
from support import claims
from support.claims import KERNELS, PROBLEMS
from support.rows import begin, put

TOOL = "publish_claims"
FOREVER = float("inf")
NO_TIME = "no time was left to finish it"


@pytest.fixture
def made(tool, store, registry, tmp_path, monkeypatch):
    """Experiments that take a second or two, `dull` longest; `made()` is what a call of `make publish` has."""
    claims.use(monkeypatch)
    begin(store)
    found = tool.Agenda()
    return lambda store=store, found=found, anyway=True: tool.Experiments(
        store, found, tmp_path, registry, "r1", anyway
    )


def measured(store):
    """The experiments that have a run, in the order of their beginning."""
    return [store.run(run).command.split()[3] for run in store.run_ids() if run != "r1"]


def test_experiments_are_measured_by_their_worth_and_once(made, store):
    made().measure(FOREVER)
    assert measured(store) == ["twice", "single", "dull"]
    again = made()
    again.measure(FOREVER)
    assert len(measured(store)) == 3
    assert list(again.runs) == ["claim twice", "claim single", "claim dull"]
    assert again.left() == ""


def test_an_experiment_that_was_stopped_goes_on_and_what_is_left_is_named_with_its_command(
    made, tool, store, monkeypatch
):
    stopped, clock = made(), tool.now
    own = [run for run in store.run_ids() if run != "r1"]
    monkeypatch.setattr(tool, "now", lambda: 200.0 * any(store.statuses(run) for run in store.run_ids()))
    stopped.measure(100.0)
    assert (own, measured(store), stopped.runs) == ([], ["twice"], {})
    lines = stopped.left().splitlines()
    assert [line.split(NO_TIME)[0] for line in lines] == ["- dull: ", "- single: ", "- twice: "]
    assert all(line.endswith("`make publish` goes on with it") for line in lines)
    monkeypatch.setattr(tool, "now", clock)
    begun = store.run_ids()[-1]
    made().measure(clock() + 3.0)  # no time for `dull`, by what it is expected to take
    assert (made().runs["claim twice"], store.statuses(begun)) == (begun, {"ok": 4})
    assert made().left().startswith("- dull: ")


def test_a_noisy_experiment_is_measured_twice_and_published_if_asked_for(made, tool, store, monkeypatch):
    monkeypatch.setattr(tool, "noise", lambda store, runs: Noise(1, 4, "others"))
    tried = made(anyway=False)
    tried.tasks = tried.tasks[-1:]
    for command in ("`make publish` goes on with it", "`make publish PUBLISH_ARGS=--noisy-anyway` publishes it"):
        tried.measure(FOREVER)
        assert tried.left() == f"- twice: NOISY: 1 of 4 cases was disturbed (others); {command}"
    tried.measure(FOREVER)
    assert (tried.runs, measured(store)) == ({}, ["twice"])
    anyway = made(anyway=True)
    anyway.tasks = anyway.tasks[-1:]
    anyway.measure(FOREVER)
    assert (list(anyway.runs), measured(store)) == (["claim twice"], ["twice"])


def answered(tool, store, made, name="single"):
    """Rows of an experiment in which the first kernel is fast, as a run that answers it; in the suites it is slow."""
    for run, seconds in (("r1", (2e-3, 1e-3)), ("r2", (1e-3, 2e-3))):
        if run != "r1":
            begin(store, run)
        for problem in PROBLEMS:
            for kernel, median in zip(KERNELS, seconds, strict=True):
                put(store, problem, kernel, median, run_id=run, threads=cpu_count() if kernel in KERNELS[:1] else 1)
    digest = next(task.digest for task in made().tasks if task.detail == name)
    return tool.Agenda(answers={f"claim {name}": tool.agenda.Answer(digest=digest, run="r2")})


def verdicts(experiments):
    return {one.id: (one.verdict, one.run_ids) for one in experiments.judged(load_prices(None))}


def test_a_claim_is_judged_by_the_rows_of_one_run(made, tool, store):
    found = verdicts(made(found=answered(tool, store, made)))
    assert found == {"b": ("confirmed", ("r2",)), **dict.fromkeys("acd", ("refuted", ("r1",)))}


def test_an_experiment_that_the_suites_hold_is_not_measured(made, tool, store):
    answered(tool, store, made)
    made().measure(FOREVER)
    assert store.run_ids() == ["r1", "r2"]


def test_a_verdict_stands_where_the_store_is_lost_and_its_claims_are_those_of_the_report(made, tool, store, tmp_path):
    agenda = answered(tool, store, made)
    first = made(found=agenda)
    write_files(tmp_path, first.judged(load_prices(None)), "here")
    other = Store(tmp_path / "other.db")
    begin(other)
    later = made(other, agenda)
    assert verdicts(later)["b"] == ("confirmed", ("r2",))
    assert [one.findings for one in later.judged(load_prices(None)) if one.id == "b"] == [
        one.findings for one in first.judged(load_prices(None)) if one.id == "b"
    ]
    assert "single" not in later.left()
    (tmp_path / "claims.csv").unlink()
    later = made(other, agenda)
    assert verdicts(later)["b"][0] == "not measured"
    assert "- single: " in later.left()
    other.close()
