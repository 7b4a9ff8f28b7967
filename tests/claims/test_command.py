"""`kernelmark claims`: what is missing is measured, what is there is judged, what is wrong is one line."""

import csv
import json
import signal
import threading

import msgspec
import pytest

from kernelmark.bench.claims import claims_rows, experiments
from kernelmark.bench.claims.catalog import claims, experiment
from kernelmark.bench.claims.evidence import thread_counts
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.present import cuda_missing
from support.processes import refusal
from support.rows import RUN

TINY = ("gemm/m64n48k32/f32/TN/alpha-0.01/beta1", "gemm/m96n48k32/f32/TN/alpha-0.01/beta1")


@pytest.fixture
def tiny(monkeypatch):
    """The claim `beta`, on problems that take no time."""
    (claim,) = claims(["beta"])
    small = msgspec.structs.replace(experiment(claim), problems=TINY, max_time=0.02)
    monkeypatch.setattr("kernelmark.bench.claims.experiments.experiment", lambda _: small)
    monkeypatch.setattr("kernelmark.bench.claims.answer.experiment", lambda _: small)
    return claim


@pytest.fixture(scope="module")
def measured(tmp_path_factory, kernelmark_in):
    """A run that has what the claim `beta` asks for, on one of its problems."""
    folder = tmp_path_factory.mktemp("claims")
    problem = "gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1"
    kernels = ("--kernels", "gemm/scipy.sgemm", "--kernels", "gemm/scipy.two_step")
    options = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings", "--db", "claims.db")
    assert kernelmark_in(folder, "run", problem, *kernels, *options).returncode == 0
    return folder


def test_what_is_missing_is_measured_once_into_a_run_of_its_own(store, registry, tiny):
    said = []
    first = experiments.measure_missing(store, [tiny], registry, said.append)
    assert (len(first.run_ids), first.finished, first.against) == (1, True, 0)
    assert said[0].startswith(f"run {first.run_ids[0]} measures what is missing")
    assert said[1] == f"beta: {experiment(tiny).title}; 2 problems"
    assert said[2].startswith("  4 ok in ")
    rows = [r for r, _ in store.results(first.run_ids[0])]
    assert {(r.problem, r.kernel) for r in rows} == {(p, k) for p in TINY for k in experiment(tiny).kernels}
    assert experiments.measure_missing(store, [tiny], registry, said.append).run_ids == first.run_ids
    (answer,) = claims_rows(store, first.run_ids, registry, only=("beta",), here=True)
    assert answer.verdict in ("confirmed", "refuted", "depends")
    assert [found.where for found in answer.findings] == ["64x48x32", "96x48x32"]


def test_runs_that_know_fewer_facts_of_this_machine_are_its_own(store, monkeypatch):
    here = {"cpu": "some", "isas": ["sse", "avx"]}
    monkeypatch.setattr(experiments, "machine", lambda: here)
    for run_id, facts in (("a", {"cpu": "some"}), ("b", here), ("c", {"cpu": "other"}), ("d", {})):
        store.begin(msgspec.structs.replace(RUN, run_id=run_id, machine=facts))
    assert experiments.own_runs(store) == ["a", "b"]


def test_what_is_not_begun_in_time_is_left_for_the_next_call(store, registry, tiny):
    said = []
    found = experiments.measure_missing(store, [tiny], registry, said.append, budget_s=-1.0)
    assert found.finished
    assert "  the time is over: 2 problems are left; the same command goes on with them" in said
    assert experiments.measure_missing(store, [tiny], registry, said.append).run_ids != found.run_ids


def test_an_interrupt_ends_the_measuring_and_keeps_the_rows(store, registry, tiny):
    def interrupt(line):
        if line.startswith("beta"):
            threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()  # its worker is starting by then

    found = experiments.measure_missing(store, [tiny], registry, interrupt)
    assert not found.finished
    assert [r.problem for r, _ in store.results(found.run_ids[0])] == [TINY[0]] * 2


def test_an_experiment_of_several_processes_has_rows_from_as_many(store, registry, tiny, monkeypatch):
    several = msgspec.structs.replace(experiments.experiment(tiny), processes=2, spread=0.0)
    monkeypatch.setattr("kernelmark.bench.claims.experiments.experiment", lambda _: several)
    passes, measure = [], experiments.run_jobs
    monkeypatch.setattr(experiments, "run_jobs", lambda *args, **own: passes.append(args) or measure(*args, **own))
    found = experiments.measure_missing(store, [tiny], registry, lambda line: None)
    assert {r.processes for r, _ in store.results(found.run_ids[0])} == {2}
    assert len(passes) == 1, "processes pass over all problems, so that those of one lie further apart"
    assert experiments.measure_missing(store, [tiny], registry, lambda line: None).run_ids == found.run_ids


def test_siblings_of_an_experiment_are_measured_in_turn_even_where_the_time_is_short(
    store, registry, tiny, monkeypatch
):
    problems = tuple(f"gemm/m64n48k32/f32/{layout}" for layout in ("NT", "NN"))
    kernels = ("gemm/scipy.sgemm",)
    asked = msgspec.structs.replace(
        experiments.experiment(tiny), problems=problems, kernels=kernels, together=("layout",)
    )
    monkeypatch.setattr("kernelmark.bench.claims.experiments.experiment", lambda _: asked)
    found = experiments.measure_missing(store, [tiny], registry, lambda line: None)
    rows = [r for r, _ in store.results(found.run_ids[0])]
    assert [r.problem for r in rows] == list(problems)
    assert len({r.job for r in rows}) == 1


def test_a_run_is_judged_without_measuring(measured, kernelmark_in):
    done = kernelmark_in(measured, "claims", "--db", "claims.db", "2", "--only", "beta,op-t-3x", "--csv", "claims.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("run 2")
    assert "\n\nNOT MEASURED  op-t-3x: " in done.stdout
    with (measured / "claims.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["id"] for row in rows] == ["op-t-3x", "beta"]
    assert float(rows[1]["ratio"]) > 0


def test_json_is_all_that_is_printed(measured, kernelmark_in):
    done = kernelmark_in(measured, "claims", "2", "--db", "claims.db", "--json", "--only", "beta")
    (found,) = json.loads(done.stdout)
    assert found["id"] == "beta"
    assert found["verdict"] in ("confirmed", "refuted", "depends")
    assert {"where", "by", "answer", "ratio", "ci95_low", "ci95_high", "in_turn", "rows"} == set(found["findings"][0])


@pytest.mark.skipif(cuda_missing() is None, reason="a GPU is here")
def test_a_claim_that_cannot_be_tested_here_is_an_answer(tmp_path, kernelmark_in):
    done = kernelmark_in(tmp_path, "claims", "--only", "gpu-lstm", "--db", "new.db")
    assert (done.returncode, done.stderr) == (0, "")
    assert "NOT TESTABLE HERE  gpu-lstm: " in done.stdout
    assert "missing: a GPU; " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "beta,nothing"), "--only 'nothing': is no claim; expected some of op-t-slower"),
        (("r9", "--db", "claims.db"), "run 'r9': is not a run of claims.db"),
        (("--prices", "none.toml"), "none.toml: cannot be read"),
        (
            ("--prices", "other.toml", "2", "--db", "claims.db"),
            "other.toml: has prices for 'Other' (cpu), expected one",
        ),
        (("--csv", "claims.db/a.csv"), "claims.db/a.csv: cannot be written"),
        (("2", "--db", "none.db"), "none.db: there is no store"),
    ],
)
def test_bad_usage_is_one_line(measured, kernelmark_in, words, said):
    prices = 'currency = "EUR"\ndate = "now"\n[[device]]\ndevice = "cpu"\nname = "Other"\nper_hour = 1.0\n'
    (measured / "other.toml").write_text(prices)
    assert said in refusal(kernelmark_in(measured, "claims", *words))


def test_threads_are_those_that_the_machine_has():
    (claim,) = claims(["threads-16"])
    assert thread_counts(experiment(claim))[-1] == cpu_count()
    assert thread_counts(experiment(claims(["beta"])[0])) == (cpu_count(),)
