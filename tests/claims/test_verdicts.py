"""Verdicts on claims: from intervals alone, and from the rows that count among those of a store."""

import msgspec
import pytest

from kernelmark.bench.claims import claims_rows
from kernelmark.bench.claims.answer import side
from kernelmark.bench.claims.catalog import Confirm, claims, experiment
from kernelmark.bench.claims.evidence import Known, entries, gather, plan, planned_jobs
from kernelmark.bench.report.contest import Ratio

NT, NN = (f"gemm/m1024n2048k26752/f32/{layout}" for layout in ("NT", "NN"))


@pytest.mark.parametrize(
    ("low", "high", "above", "below", "between"),
    [
        (1.1, 1.2, "yes", "no", "no"),
        (0.8, 0.9, "no", "yes", "no"),
        (0.9, 1.2, "tie", "tie", "no"),
        (1.3, 1.9, "yes", "no", "tie"),
        (1.5, 1.9, "yes", "no", "yes"),
        (1.5, 2.1, "yes", "no", "tie"),
        (2.1, 9.0, "yes", "no", "no"),
        (None, None, "tie", "tie", "tie"),
    ],
)
def test_an_answer_needs_the_whole_interval_on_one_side(low, high, above, below, between):
    ratio = Ratio(1.0, low, high)
    confirms = (Confirm(above=1.0), Confirm(below=1.0), Confirm(between=(1.4, 2.0)))
    assert [side(ratio, confirm) for confirm in confirms] == [above, below, between]


def test_slower_beyond_doubt_confirms_and_faster_beyond_doubt_refutes(put, verdict):
    put("gemm/scipy.sgemm", NT, 2.0)
    put("gemm/scipy.sgemm", NN, 1.0)
    slower, three = verdict("op-t-slower"), verdict("op-t-3x")
    assert (slower.verdict, three.verdict) == ("confirmed", "refuted")
    (found,) = slower.findings
    assert (found.where, found.answer) == ("scipy.sgemm", "yes")
    assert (found.ratio, found.ci95_low) == (pytest.approx(2.0), pytest.approx(2.0 * 0.99 / 1.01))
    assert slower.interval == "within-process"
    assert found.rows == slower.rows == (f"r1 gemm/scipy.sgemm {NN} cold t2", f"r1 gemm/scipy.sgemm {NT} cold t2")


def test_an_interval_that_includes_the_number_is_a_tie(put, verdict):
    put("gemm/scipy.sgemm", NT, 1.01, spread=0.1)
    put("gemm/scipy.sgemm", NN, 1.0, spread=0.1)
    found = verdict("op-t-slower")
    assert found.verdict == "depends"
    assert found.said[0].startswith("tie  scipy.sgemm: 1.01x [")


def test_where_problems_disagree_it_depends_and_says_where(put, verdict):
    for m, two_step_s in ((2048, 2.0), (4096, 0.5)):
        problem = f"gemm/m{m}n2048k1024/f32/TN/alpha-0.01/beta1"
        put("gemm/scipy.sgemm", problem, 1.0)
        put("gemm/scipy.two_step", problem, two_step_s)
    found = verdict("beta")
    assert found.verdict == "depends"
    yes, no = found.said
    assert yes.startswith("yes  2048x2048x1024 (scipy.sgemm against scipy.two_step): 2x [")
    assert no.startswith("no  4096x2048x1024 (scipy.sgemm against scipy.two_step): 0.5x [")


def test_the_founding_call_is_the_row_major_one_and_the_other_reading_a_claim_of_its_own(put, verdict):
    for layout, time_s in (("NT", 2.0), ("NN", 1.0)):
        put("gemm/scipy.sgemm", f"gemm/m1024n2048k26752/f32/{layout}", time_s)
        put("gemm/scipy.sgemm_colmajor", f"gemm/m1024n2048k26752/f32/{layout}", 3.0 - time_s)
    made, other = verdict("op-t-slower"), verdict("op-t-slower-colmajor")
    assert [(a.verdict, a.findings[0].where) for a in (made, other)] == [
        ("confirmed", "scipy.sgemm"),
        ("refuted", "scipy.sgemm_colmajor"),
    ]
    assert "OP_T" in made.applies


def test_kernels_of_one_job_are_compared_round_by_round(put, verdict):
    put("gemm/numpy.matmul", NT, 2.0, spread=0.5)
    put("gemm/openblas.tnn", NT, 1.0, spread=0.5)
    put("gemm/numpy.tnn", NT, 9.0, spread=0.5)
    (found,) = verdict("transpose-first").findings
    assert found.ci95_low == pytest.approx(2.0), "the common spread cancels"
    assert found.by == "openblas.tnn against numpy.matmul"


def test_problems_are_never_paired_and_it_says_so(put, verdict):
    for problem, factor in ((NT, 1.1), (NN, 1.0)):
        medians = [factor * time_s for time_s in (1.0, 3.0, 2.0)]
        put("gemm/scipy.sgemm", problem, 2.0 * factor, spread=0.5, medians=medians, processes=3)
    found = verdict("op-t-slower")
    assert [(number.in_turn, number.answer) for number in found.findings] == [(False, "tie")]
    assert found.notes[-1].startswith("not measured in turn: 1 of 1 numbers, ")


def test_numbers_of_rows_measured_in_turn_have_no_such_note(put, verdict):
    put("gemm/numpy.matmul", NT, 2.0)
    put("gemm/openblas.tnn", NT, 1.0)
    found = verdict("transpose-first")
    assert [number.in_turn for number in found.findings] == [True]
    assert not any("turn" in note for note in found.notes)


def test_samples_of_different_runs_are_no_pairs(put, verdict):
    put("gemm/numpy.matmul", NT, 2.0, spread=0.5, run_id="r1")
    put("gemm/openblas.tnn", NT, 1.0, spread=0.5, run_id="r2")
    assert verdict("transpose-first", ("r1", "r2")).verdict == "not measured"


def test_a_kernel_of_another_problem_can_be_the_measure(put, verdict):
    put("gemm/openblas.inplace", NT, 3.0)
    put("gemm/numpy.matmul", NT, 1.5)
    put("gemm/numpy.matmul", NN, 1.0)
    found = verdict("in-place-costly")
    assert (found.verdict, [f.where for f in found.findings]) == ("confirmed", ["openblas.inplace"])


def test_the_rows_of_the_run_with_most_kernels_count_and_then_the_latest(store, registry, put):
    asked = experiment(*claims(["transpose-first"]))

    def whose():
        results = [r for run_id in store.run_ids() for r, _ in store.results(run_id)]
        return {r.run_id for r in gather(store, registry, asked, results).rows}

    put("gemm/numpy.matmul", NT, 1.0, run_id="r1")
    put("gemm/numpy.tnn", NT, 1.0, run_id="r1")
    put("gemm/numpy.matmul", NT, 2.0, run_id="r2")
    assert whose() == {"r1"}
    put("gemm/numpy.tnn", NT, 2.0, run_id="r2")
    assert whose() == {"r2"}


def test_rows_from_the_processes_that_are_asked_for_go_before_later_ones(put, verdict):
    for run_id, processes, nt in (("r1", 3, 2.0), ("r2", 1, 1.0)):
        for problem, time_s in ((NT, nt), (NN, 1.0)):
            put("gemm/scipy.sgemm", problem, time_s, run_id=run_id, processes=processes)
    found = verdict("op-t-slower", ("r1", "r2"))
    assert (found.run_ids, found.verdict) == (("r1",), "confirmed")


def test_failures_are_what_is_missing(put, verdict):
    oom = {"status": "oom", "reason": "needs 3 GB", "time_s_median": None}
    put("gemm/scipy.two_step", "gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1", 1.0, **oom)
    found = verdict("beta")
    assert found.verdict == "not measured"
    assert found.rows == ("r1 gemm/scipy.two_step gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1 cold t2",)
    assert "scipy.two_step on gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1: oom: needs 3 GB" in found.said[0]


def test_a_run_without_rows_says_which_would_be_needed(store, put, verdict):
    put("gemm/numpy.matmul", "gemm/m8n8k8/f32/NN", 1.0)
    cpu, gpu = verdict("op-t-slower"), verdict("gpu-lstm")
    assert cpu.said[0].startswith("rows of the experiment 'op-t' (SciPy's SGEMM as NT and as NN")
    assert cpu.said[0].endswith("`kernelmark claims --only op-t-slower` measures them")
    assert gpu.said[0].endswith("`kernelmark claims --only gpu-lstm` measures them on a machine with a GPU")
    assert (cpu.verdict, gpu.verdict) == ("not measured", "not measured")


def test_without_a_run_the_hardware_is_that_of_this_machine(store, registry, monkeypatch):
    facts = {"cpu": "Some CPU", "cpus_usable": 2, "isas": ["sse", "avx2"]}
    monkeypatch.setattr("kernelmark.bench.claims.answer.machine", lambda: facts)
    gpu, cpu = claims_rows(store, [], registry, only=("gpu-lstm", "beta"), here=True)[::-1]
    assert (gpu.verdict, gpu.said) == ("not testable here", ("a GPU; Some CPU has none",))
    assert cpu.verdict == "not measured"


def lacks(store, run_ids, asked, registry):
    """The problems of the jobs that runs lack of an experiment."""
    how, jobs = planned_jobs(asked, registry, ("cpu",))
    return [problem for planned in Known(store, run_ids).lacks(how, jobs, registry) for problem in planned.job.problems]


def test_what_a_run_holds_whole_is_not_missing(store, registry, put):
    asked = msgspec.structs.replace(experiment(*claims(["beta"])), processes=2)
    (first, second) = entries(asked, registry)
    for kernel in asked.kernels:
        put(kernel, first.entry.problem.id, 1.0, processes=2, threads=plan(asked, ("cpu",)).threads[0])
        put(kernel, second.entry.problem.id, 1.0, processes=1, threads=plan(asked, ("cpu",)).threads[0])
    assert lacks(store, ["r1"], asked, registry) == [second.entry.problem.id]


def test_rows_of_a_run_that_has_the_siblings_too_go_before_later_ones_that_stand_alone(put, verdict):
    for problem, time_s in ((NT, 2.0), (NN, 1.0)):
        put("gemm/scipy.sgemm", problem, time_s, spread=0.5, job="together")
    put("gemm/scipy.sgemm", NT, 9.0, run_id="r2")
    found = verdict("op-t-slower", ("r1", "r2"))
    assert found.run_ids == ("r1",)
    assert found.findings[0].ci95_low == pytest.approx(2.0), "the common spread cancels"


def test_siblings_are_missing_together_unless_one_run_has_them_all(store, registry, put):
    asked = experiment(*claims(["op-t-slower"]))
    for run_id, problem in (("r1", NT), ("r2", NN)):
        for kernel in asked.kernels:
            put(kernel, problem, 1.0, run_id=run_id, processes=5)
    assert lacks(store, ["r1", "r2"], asked, registry) == [NT, NN]
    for kernel in asked.kernels:
        put(kernel, NT, 1.0, run_id="r2", processes=5)
    assert lacks(store, ["r1", "r2"], asked, registry) == []
