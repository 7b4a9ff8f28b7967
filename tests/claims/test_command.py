"""The command that judges claims, and the catalogue of all claims."""

import json
import re
import signal
import threading
from pathlib import Path

import msgspec
import pytest

from kernelmark.bench.claims import answer, experiments
from kernelmark.bench.claims.catalog import (
    FOLDER,
    ORDER,
    Catalog,
    catalog,
    claims,
    experiment,
    experiment_names,
    read_table,
)
from kernelmark.bench.claims.evidence import batch_of, entries, planned, thread_counts
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.plan.globs import matches
from support.rows import begin
from support.texts import csv_rows

TINY = ("gemm/m64n48k32/f32/TN/alpha-0.01/beta1", "gemm/m96n48k32/f32/TN/alpha-0.01/beta1")


@pytest.fixture
def measure(store, registry, monkeypatch):
    """Return a function that measures missing rows of the claim `beta`, on tiny problems unless `changes` differs."""
    (claim,) = claims(["beta"])

    def of(say=lambda line: None, changes=(), **options):
        small = msgspec.structs.replace(experiment(claim), **{"problems": TINY, "max_time": 0.02, **dict(changes)})
        for module in (experiments, answer):
            monkeypatch.setattr(module, "experiment", lambda _: small)
        return experiments.measure_missing(store, [claim], registry, say, **options)

    return of


def test_missing_rows_are_measured_once_into_a_new_run(store, registry, measure):
    lines, (claim,) = [], claims(["beta"])
    first = measure(lines.append)
    assert (len(first.run_ids), first.finished, first.against) == (1, True, 0)
    assert lines[0].startswith(f"run {first.run_ids[0]} measures missing rows")
    assert lines[1] == f"beta: {experiment(claim).title}; 2 problems"
    assert lines[2].startswith("  4 ok in ")
    rows = [r for r, _ in store.results(first.run_ids[0])]
    assert {(r.problem, r.kernel) for r in rows} == {(p, k) for p in TINY for k in experiment(claim).kernels}
    assert measure().run_ids == first.run_ids
    (beta,) = answer.claims_rows(store, first.run_ids, registry, only=("beta",), here=True)
    assert beta.verdict in ("confirmed", "refuted", "depends")
    assert [finding.where for finding in beta.findings] == ["64x48x32", "96x48x32"]


def test_runs_of_this_machine_may_have_fewer_facts_about_it(store, monkeypatch):
    here = {"cpu": "some", "isas": ["sse", "avx"]}
    monkeypatch.setattr(experiments, "machine", lambda: here)
    for run_id, facts in (("a", {"cpu": "some"}), ("b", here), ("c", {"cpu": "other"}), ("d", {})):
        begin(store, run_id, machine=facts)
    assert experiments.own_runs(store) == ["a", "b"]


def test_problems_that_are_not_begun_in_time_are_left_for_the_next_call(measure):
    lines = []
    measured = measure(lines.append, budget_s=-1.0)
    assert measured.finished
    assert "  out of time: 2 problems are left; the same command continues with them" in lines
    assert measure().run_ids != measured.run_ids


def test_an_interrupt_ends_the_measuring_and_keeps_the_rows(store, measure):
    def interrupt(line):
        if line.startswith("beta"):
            threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()  # its worker is starting by then

    measured = measure(interrupt)
    assert not measured.finished
    assert [r.problem for r, _ in store.results(measured.run_ids[0])] == [TINY[0]] * 2


def test_a_second_interrupt_reports_that_the_rows_are_stored(called, monkeypatch):
    def measured(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelmark.bench.cli.report.measure_missing", measured)
    assert called("claims")[::2] == (130, "interrupted; all rows so far are stored, and the same command continues\n")


def test_rows_of_an_experiment_come_from_its_number_of_processes(store, measure, monkeypatch):
    passes, run_jobs = [], experiments.run_jobs
    monkeypatch.setattr(experiments, "run_jobs", lambda *args, **named: passes.append(args) or run_jobs(*args, **named))
    several = {"processes": 2, "spread": 0.0}
    measured = measure(changes=several)
    assert {r.processes for r, _ in store.results(measured.run_ids[0])} == {2}
    assert len(passes) == 1, "a pass has all problems, so that the processes of one problem are further apart"
    assert measure(changes=several).run_ids == measured.run_ids


def test_variants_of_an_experiment_are_measured_in_turn_even_if_the_time_is_short(store, measure):
    problems = tuple(f"gemm/m64n48k32/f32/{layout}" for layout in ("NT", "NN"))
    changes = {"problems": problems, "kernels": ("gemm/scipy.sgemm",), "together": ("layout",)}
    rows = [r for r, _ in store.results(measure(changes=changes).run_ids[0])]
    assert ([r.problem for r in rows], len({r.job for r in rows})) == (list(problems), 1)


def test_a_run_is_judged_without_measuring_as_text_csv_and_json(put, store, called, tmp_path):
    for kernel, time_s in (("gemm/scipy.sgemm", 1.0), ("gemm/scipy.two_step", 1.5)):
        put(kernel, experiment(*claims(["beta"])).problems[0], time_s)
    store.close()
    words = ("claims", "r1", "--db", str(store.path), "--only")
    printed = called(*words, "beta,op-t-3x", "--csv", "claims.csv").printed
    assert printed.startswith("run r1")
    assert re.search(r"\n\nNOT MEASURED  op-t-3x: [^\n]*\n +missing: rows of the experiment", printed)
    rows = csv_rows(tmp_path / "claims.csv")
    assert [row["id"] for row in rows] == ["op-t-3x", "beta"]
    assert float(rows[1]["ratio"]) == pytest.approx(1.5)
    (beta,) = json.loads(called(*words, "beta", "--json").printed)
    assert (beta["id"], beta["verdict"]) == ("beta", "depends")  # the other problem has no time
    assert {"where", "by", "answer", "ratio", "ci95_low", "ci95_high", "in_turn", "rows"} == set(beta["findings"][0])


def test_thread_counts_end_at_the_number_of_cpus():
    (claim,) = claims(["threads-16"])
    assert thread_counts(experiment(claim))[-1] == cpu_count()
    assert thread_counts(experiment(claims(["beta"])[0])) == (cpu_count(),)


#: The beginnings of all clauses of the founding texts.
CLAUSES = (Path(__file__).parents[1] / "data" / "clauses.txt").read_text().splitlines()


def test_every_clause_has_its_own_claim():
    for clause in CLAUSES:
        assert any(claim.words.startswith(clause) for claim in catalog().claim), clause
    words = [claim.words for claim in catalog().claim]
    assert len(set(words)) == len(words)


def test_every_file_of_claims_is_read():
    assert {path.stem for path in FOLDER.glob("*.toml")} - {"prices"} == set(ORDER)


@pytest.mark.parametrize("claim", catalog().claim, ids=lambda claim: claim.id)
def test_a_claim_cites_a_text_with_its_year_and_names_problems_and_kernels_that_exist(claim, registry):
    assert any(year in claim.cited for year in ("2016", "2017", "2020"))
    assert "founding text" not in claim.cited
    assert claim.applies
    assert claim.number
    experiment_, comparison = experiment(claim), claim.comparison
    problems = {layer.entry.problem.id for layer in entries(experiment_, registry)}
    sides = [*comparison.one, *comparison.other]
    if comparison.kind == "problems":
        assert set(sides) <= problems
    elif comparison.kind in ("kernels", "verified"):
        assert all(_fits(glob, registry.kernels) for glob in sides)
    assert all(_fits(glob, problems) for glob in comparison.problems)
    assert all(_fits(glob, registry.kernels) for glob in (*experiment_.kernels, *comparison.kernels))
    assert set(comparison.other) <= {"1", "2", "4", "8", "32", "64"} or comparison.kind != "threads"


def _fits(glob, names):
    return any(matches(name, (glob,)) for name in names)


def test_a_case_has_the_same_contenders_in_every_experiment(registry):
    """A run keeps only the first row of a case, but kernels are compared only if they were measured alternately."""
    for devices in (("cpu",), ("cpu", "cuda")):
        contenders = {}
        for trial in (e for e in catalog().experiment if e.device in devices):
            for job in planned(trial.id, registry, devices)[1]:
                for kernel in job.job.kernels:
                    case = (kernel, job.job.problems, job.job.threads, job.job.isa)
                    assert contenders.setdefault(case, job.job.kernels) == job.job.kernels, trial.id


def test_the_jobs_of_each_experiment_are_planned_by_its_name_only_for_its_device(registry):
    assert experiment_names() == [trial.id for trial in catalog().experiment]
    for trial in catalog().experiment:
        how, jobs = planned(trial.id, registry, ("cpu", "cuda"))
        assert {p for job in jobs for p in job.job.problems} == {e.entry.problem.id for e in entries(trial, registry)}
        assert (how.spread_s, how.processes, how.max_time_s) == (trial.spread, trial.processes, trial.max_time)
        used = {registry.kernels[kernel].device for job in jobs for kernel in job.job.kernels}
        assert ("cuda" in how.devices, "cuda" in used) == (trial.device == "cuda",) * 2, trial.id


def test_variants_of_an_experiment_are_one_job_and_jobs_have_places_and_suites(registry):
    _, jobs = planned("founding-cublas", registry, ("cpu", "cuda"))
    assert [len(job.job.problems) for job in jobs] == [2]
    _, jobs = planned("aggregated-networks", registry, ("cpu",))
    assert [job.place for job in jobs] == list(range(len(jobs)))
    assert {job.suite for job in jobs} == {"alexnet", "googlenet", "resnet50", "aggregation"}


def test_an_experiment_without_a_claim_is_refused(registry, complaint):
    line = complaint(lambda: planned("op-u", registry, ("cpu",)))
    assert line.startswith("'op-u': is not an experiment of a claim; expected one of op-t, strategies, ")


def test_a_batch_is_put_into_the_dimension_of_images(registry):
    layers = entries(experiment(*claims(["layers-alexnet"])), registry)
    assert {(batch_of(e.entry.problem), e.batch) for e in layers} == {(1, 1), (8, 8)}
    assert {e.entry.problem.id for e in layers} >= {"gemm/m8n4096k9216/f32/NT", "gemm/m4096n9216k8/f32/TN"}


@pytest.mark.parametrize(
    ("confirm", "reason"), [("", "expected one of above, below, between"), ("over = 1", "unknown field `over`")]
)
def test_a_claim_without_a_number_is_refused(tmp_path, complaint, confirm, reason):
    claim = "[[claim]]\n" + "\n".join(f"{key} = 'a'" for key in ("id", "words", "applies", "experiment", "number"))
    (tmp_path / "mine.toml").write_text(f"{claim}\nconfirm = {{ {confirm} }}\ncomparison = {{ kind = 'threads' }}")
    assert reason in complaint(lambda: read_table(tmp_path / "mine.toml", Catalog))
