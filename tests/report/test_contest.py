"""Ratios between rows: paired within a job, quotients of intervals between jobs, machines and vendors' kernels."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from kernelmark.bench.claims import views
from kernelmark.bench.claims.answer import claims_rows
from kernelmark.bench.claims.evidence import ExperimentRows
from kernelmark.bench.claims.findings import Question
from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.plan.suites import load_suite
from kernelmark.bench.record.records import Layer
from kernelmark.bench.report import findings, founding
from kernelmark.bench.report.contest import Ratio, by_setting, contests, faster, know_leads
from kernelmark.bench.report.crossover import render, standings, write_csv
from kernelmark.bench.report.networks import times_of
from kernelmark.bench.report.pivot import Options, all_pivots
from kernelmark.bench.report.publish import SeveralRuns
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tuning import decide, races
from kernelmark.bench.report.variants import variant_lines
from support.rows import BEYOND, PLAN, begin, fail, put, result
from support.texts import csv_rows, text_of

NT = "gemm/m1024n2048k26752/f32/NT"
NN = NT.replace("NT", "NN")
DIMS = {"m": 1024, "n": 2048, "k": 26752}
#: What slows the rounds of a job, for all its kernels alike.
ROUNDS = [1.0 + 0.06 * (i * 7 % 10) for i in range(40)]
SUITE = '[[sweep]]\nop = "gemm"\nm = 1024\nn = 2048\nk = 26752\nlayout = "NT"\ndtype = "f32"\n'


def add(store, kernel, job, factor=1.0, problem=NT, rounds=ROUNDS, **values):
    taken = [factor * 1e-3 * each for each in rounds]
    return put(store, problem, kernel, 1e-3, DIMS, taken, job=job, baseline="gemm/numpy.matmul", **values)


@pytest.fixture
def drifted(begun):
    """`run --threads 1,2` of two kernels that are equal, on a machine that is 10 % slower during the second job.

    `tnn` has only one thread, so it is measured in the first job, and compared with `matmul` in both contests.
    """
    add(begun, "gemm/numpy.matmul", "first", threads=1)
    add(begun, "gemm/openblas.tnn", "first", threads=1)
    add(begun, "gemm/numpy.matmul", "second", 1.1, threads=2)
    return begun


def test_drift_between_jobs_is_no_lead_and_within_a_job_the_ratio_is_exact(drifted):
    alone, beside = RunData(drifted, "r1").contests
    assert [(c.setting.threads, len(c.ranked)) for c in (alone, beside)] == [(1, 2), (2, 2)]
    assert alone.lead == Ratio(1.0, 1.0, 1.0, in_turn=True)
    assert (beside.lead.in_turn, beside.lead.certain) == (False, False)
    assert beside.lead.median == pytest.approx(1.1)
    assert beside.lead.low < 1 < beside.lead.high
    fast, slow = beside.ranked
    ratio = faster(drifted, fast, slow)  # unpaired: the quotient of both intervals
    assert ratio.low == pytest.approx(slow.time_s_ci95_low / fast.time_s_ci95_high)
    assert ratio.high == pytest.approx(slow.time_s_ci95_high / fast.time_s_ci95_low)


def test_crossover_says_which_lead_was_not_measured_in_turn(drifted, registry, tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    suite = load_suite(tmp_path / "mine.toml", registry)
    all_contests = standings(suite, drifted, "r1")
    paired, unpaired = (text.splitlines()[3] for text in render(suite, all_contests).split("\n\n")[:2])
    assert paired.endswith("  tie [1, 1]")
    assert "  tie [" in unpaired
    assert unpaired.endswith("] (not measured in turn)")
    rows = csv_rows(text_of(lambda out: write_csv(suite, "r1", all_contests, out)))
    assert [row["ratio_in_turn"] for row in rows] == ["yes", "no"]


def test_crossover_sets_a_kernel_against_itself_on_the_variant(begun, registry, tmp_path):
    layouts = SUITE.replace('"NT"', '["NT", "NN"]')
    (tmp_path / "mine.toml").write_text(f'{layouts}together = ["layout"]\n')
    suite = load_suite(tmp_path / "mine.toml", registry)
    for problem, factor in ((NT, 1.0), (NN, 0.5)):
        add(begun, "gemm/numpy.matmul", "first", factor, problem)
    add(begun, "gemm/openblas.tnn", "first")
    lines = render(suite, standings(suite, begun, "r1")).splitlines()
    table = lines[lines.index("") + 1 :][:4]
    assert table[0].split() == ["kernel", "variant", "against", "variant's", "speed"]
    assert table[2].split() == ["numpy.matmul", NN, NT, "2x", "[2,", "2]"]
    assert table[3] == ""


def test_the_page_says_which_lead_was_not_measured_in_turn_and_advises_nothing_by_drift(drifted):
    paired, unpaired = findings.fastest(RunData(drifted, "r1"))[0]
    assert "turn" not in paired.lead
    assert unpaired.lead.endswith("] over numpy.matmul, not measured in turn, tie")
    answers = founding.answers(RunData(drifted, "r1"))
    assert all("Don't transpose first: no gain is certain, " in answer.words for answer in answers)
    assert ["not measured in turn" in answer.evidence[2] for answer in answers] == [True, False]


def test_the_fastest_are_those_that_others_were_slower_than(begun):
    """A baseline that is the only kernel at its thread count takes longer, and is not the fastest of anything."""
    for kernel, factor, threads in (("numpy.matmul", 90.0, 16), ("numpy.matmul", 1.0, 2), ("openblas.tnn", 0.5, 2)):
        add(begun, f"gemm/{kernel}", "first", factor, threads=threads)
    leaders, of = findings.fastest(RunData(begun, "r1"))
    assert ([leader.kernel for leader in leaders], of) == (["openblas.tnn"], 1)
    (sentence,) = findings.sentences(RunData(begun, "r1"))
    assert sentence.startswith("gemm: 1 problem; fastest: openblas.tnn.")


def test_what_is_faster_beyond_its_interval_is_advised_with_the_remark(begun):
    add(begun, "gemm/numpy.matmul", "first", 3.0, threads=2)
    add(begun, "gemm/openblas.tnn", "second", threads=1)
    (answer,) = founding.answers(RunData(begun, "r1"))
    assert "Transpose B out of place first: it is 3x as fast as OP_T, 3x [" in answer.words
    assert answer.words.endswith("], not measured in turn.")


def test_claims_leave_open_what_drift_may_have_made(drifted, registry):
    (answer,) = claims_rows(drifted, ["r1"], registry, only=("transpose-first",))
    assert answer.notes[-1].startswith("not measured in turn: 1 of 2 numbers, ")
    rows = csv_rows(text_of(lambda out: views.write_csv([answer], out)))
    assert [(row["in_turn"], row["answer"]) for row in rows] == [("yes", "tie"), ("no", "tie")]


@pytest.mark.parametrize("in_turn", [True, False])
def test_variants_are_free_of_drift_within_a_job_and_left_open_between_jobs(begun, registry, in_turn):
    """NN takes 2 % less than NT, while the machine drifts by half; between two jobs the second is 10 % slower."""
    for kernel in ("gemm/numpy.matmul", "gemm/openblas.tnn", "gemm/scipy.sgemm"):
        add(begun, kernel, "first")
    for kernel in ("gemm/numpy.matmul", "gemm/scipy.sgemm"):
        add(begun, kernel, "first" if in_turn else "second", 0.98 if in_turn else 1.078, NN)
    (page,) = founding.answers(RunData(begun, "r1"))
    (claim,) = claims_rows(begun, ["r1"], registry, only=("op-t-slower",))
    if in_turn:
        assert page.words.startswith("OP_T is 2 % slower than OP_N here, 0.98x [0.98, 0.98]. ")
        assert (claim.verdict, claim.findings[0].in_turn, claim.notes) == ("confirmed", True, ())
    else:
        assert page.words.startswith("NT vs NN: no measurable difference (1.08x [")
        assert "not measured in turn" in page.words
        assert (claim.verdict, claim.findings[0].in_turn) == ("depends", False)


def test_too_few_rounds_of_one_job_have_no_interval_and_were_measured_in_turn(begun):
    rows = [add(begun, f"gemm/some.k{i}", "a", 1.0 + i, rounds=[1.0] * 5) for i in range(2)]
    assert faster(begun, *rows) == Ratio(2.0, None, None, in_turn=True)


def test_processes_are_paired_one_by_one(begun):
    # The second process is slow as a whole, and took fewer rounds with one kernel than with the other.
    rows = []
    for factor, last in ((1, 16), (2, 12)):
        parts = [ProcessPart(12, factor * 1e-3), ProcessPart(last, factor * 1e-2)]
        rounds = [1.0] * 12 + [10.0] * last
        rows.append(add(begun, f"gemm/some.k{factor}", "a", factor, rounds=rounds, parts=parts))
    assert faster(begun, *rows)[:3] == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize(
    ("ratio", "side", "words"),
    [
        (Ratio(2.0, 1.5, 2.5), "faster", "2x [1.5, 2.5]"),
        (Ratio(0.5, 0.4, 0.6), "slower", "0.5x [0.4, 0.6]"),
        (Ratio(1.1, 1.0, 1.2), "tie", "1.1x [1, 1.2] (tie)"),
        (Ratio(2.0), "without an interval", "2x (without an interval)"),
        (Ratio(2.0, 1.5, 2.5, in_turn=False), "faster", "2x [1.5, 2.5] (not measured in turn)"),
        (Ratio(1.1, 0.9, 1.2, False), "tie", "1.1x [0.9, 1.2] (not measured in turn, tie)"),
    ],
)
def test_a_ratio_is_certain_only_if_its_interval_leaves_out_one(ratio, side, words):
    assert (ratio.side, ratio.words) == (side, words)
    assert ratio.certain is (side in ("faster", "slower"))


def test_quotients_of_ratios_are_not_paired_and_as_wide_as_their_ends_allow():
    above, below = Ratio(6.0, 5.0, 8.0), Ratio(2.0, 1.0, 4.0)
    assert above.over(below) == Ratio(3.0, 1.25, 8.0, in_turn=False)
    assert above.over(Ratio(2.0)) == Ratio(3.0, None, None, in_turn=False)
    assert above.scaled(0.5) == Ratio(3.0, 2.5, 4.0)


@pytest.mark.parametrize(
    ("measured", "listed"),
    [
        ({"b": (1, 2), "a": (1,)}, {1: ["b", "a"], 2: ["b", "a"]}),
        ({"a": (1,)}, {1: ["a"]}),
        ({"b": (1, 2), "d": (1, 4)}, {1: ["b", "d"], 2: ["b"], 4: ["d"]}),
        ({"b": (1, 2), "x": (2,)}, {1: ["b"], 2: ["b", "x"]}),
    ],
    ids=["one thread beside two", "one thread alone", "threaded only where measured", "failed on one thread"],
)
def test_kernels_of_one_thread_stand_at_every_count_and_threaded_ones_where_they_were_measured(measured, listed):
    rows = [result(kernel=kernel, threads=threads) for kernel, counts in measured.items() for threads in counts]
    assert {setting.threads: [r.kernel for r in group] for setting, group in by_setting(rows).items()} == listed


@pytest.mark.parametrize("outcome", ["crashed", "ran beyond", "measured on another problem"])
def test_a_kernel_without_a_time_on_several_threads_has_no_rank_there_with_its_time_on_one(begun, outcome):
    for kernel, median, threads in (("fast", 1.0, 1), ("slow", 2.0, 1), ("slow", 2.0, 4)):
        ratio = {"against": NN, "ratio": 0.9, "ratio_ci95_low": 0.8, "ratio_ci95_high": 1.0}
        put(begun, NT, f"gemm/some.{kernel}", median, threads=threads, **ratio)
    if outcome == "crashed":
        fail(begun, NT, "gemm/some.fast", outcome, device_name="", numerics="", threads=4)
    elif outcome == "ran beyond":
        put(begun, NT, "gemm/some.fast", 0.5, threads=4, disturbed=BEYOND, **ratio)
    else:
        put(begun, NN, "gemm/some.fast", threads=4)
    data = RunData(begun, "r1")
    at_four = [
        *([r.kernel for r in c.ranked] for c in data.contests if (c.problem, c.setting.threads) == (NT, 4)),
        *(list(t[NT]) for s, t in times_of([Layer("net", NT, "forward", 1)], data.rows).items() if s.threads == 4),
        *([r.kernel for r in rows if r.problem == NT] for s, rows in settings_of(data).items() if s.threads == 4),
        *(
            [f"gemm/{name}" for name in re.findall(r"some\.\w+", line)]
            for line in variant_lines(data.timed, data.threaded)
            if "4 threads" in line
        ),
    ]
    assert at_four == [["gemm/some.slow"]] * 4


@pytest.mark.parametrize(("first", "second"), [(1, 4), (4, 1)])
@pytest.mark.parametrize("baseline", ["gemm/numpy.matmul", "gemm/some.single"])
def test_no_contest_has_a_speedup_over_the_baseline_at_another_thread_count(store, baseline, first, second):
    """A kernel of one thread runs in only one job; a baseline of one thread is the same row in all contests."""
    begin(store, plan={**PLAN, "threads": [first, second]})
    kernels = {"gemm/numpy.matmul": (first, second), "gemm/some.single": (1,), "gemm/some.other": (1,)}
    for kernel, counts in kernels.items():
        for threads in counts:
            of = {} if kernel == baseline else {"speedup": 2.0, "speedup_ci95_low": 1.9, "speedup_ci95_high": 2.1}
            put(
                store,
                NT,
                kernel,
                threads=threads,
                baseline=baseline,
                job=f"{first if counts == (1,) else threads}",
                **of,
            )
    singles = {"gemm/some.single", "gemm/some.other"} if baseline == "gemm/numpy.matmul" else set()
    contests, options = RunData(store, "r1").contests, Options(metric="speedup", sizes=True)
    pivots = {pivot.setting.threads: pivot for pivot in all_pivots(store, "r1", options)}
    for c in contests:
        without = {baseline, *(singles if c.setting.threads == second else ())}
        assert {r.kernel for r in c.ranked if not r.speedup} == without
        pivot = pivots[c.setting.threads]
        cells = dict(zip(pivot.kernels, pivot.lines[0].cells, strict=True)) if pivot.lines else {}
        assert {kernel for kernel, cell in cells.items() if cell and cell.number} == ({*kernels} - without)


def settings_of(data):
    """The settings of a claim about the rows of a run."""
    layers = [SimpleNamespace(entry=SimpleNamespace(problem=SimpleNamespace(id=problem))) for problem in (NT, NN)]
    evidence = ExperimentRows(data.store, None, layers, data.rows)
    return Question(None, evidence, evidence.rows, None).settings


def test_mode_precision_device_instruction_set_and_order_of_the_product_are_settings_of_their_own(begun):
    kinds = ({}, {"mode": "hot"}, {"numerics": "tf32"}, {"isa": "sse"}, {"device": "cuda", "device_name": "GPU"})
    rows = [put(begun, NT, f"gemm/some.k{i}", threads=1, **kind) for i, kind in enumerate(kinds)]
    rows += [put(begun, NT, f"gemm/some.{name}", threads=1) for name in ("sgemm", "sgemm_colmajor")]
    assert [(c.setting.title, len(c.ranked)) for c in contests(rows, begun)] == [
        ("Some CPU, 1 thread, cold, fp32", 2),
        ("Some CPU, 1 thread, hot, fp32", 1),
        ("Some CPU, 1 thread, cold, tf32", 1),
        ("Some CPU, sse, 1 thread, cold, fp32", 1),
        ("GPU, cold, fp32", 1),
        ("Some CPU, 1 thread, cold, fp32, column-major", 1),
    ]


TURN, MACHINE = "not measured in turn", "not measured on one machine"


@pytest.mark.parametrize(
    ("facts", "other", "remark"),
    [
        ({"job": ""}, {"job": ""}, TURN),
        ({}, {"run_id": "r2"}, TURN),
        ({"host": "one"}, {"host": "two", "job": "b"}, MACHINE),
        ({"host": "one"}, {"host": "one", "job": "b"}, TURN),
        ({"host": "one"}, {"job": "b"}, TURN),
        ({"device_uuid": "a"}, {"device_uuid": "b", "job": "b"}, MACHINE),
        ({"device_name": "a"}, {"device_name": "b", "job": "b"}, MACHINE),
        ({"device": "cuda", "device_name": "a"}, {"device_name": "b", "job": "b"}, TURN),
    ],
)
def test_rows_of_no_known_job_two_jobs_runs_or_machines_are_not_paired_and_labelled_so(begun, facts, other, remark):
    begin(begun, "r2")
    first, second = (add(begun, f"gemm/some.{k}", **{"job": "a"} | v) for k, v in (("a", facts), ("b", other)))
    ratio = faster(begun, first, second)
    assert (ratio.in_turn, ratio.remarks[0]) == (False, remark)
    assert (ratio.low, ratio.high) == pytest.approx(
        (second.time_s_ci95_low / first.time_s_ci95_high, second.time_s_ci95_high / first.time_s_ci95_low)
    )
    assert ratio.scaled(2.0).over(ratio.plus(1.0)).apart == remark


def test_leads_that_are_formed_at_once_are_those_that_are_asked_for(begun):
    rows = [
        put(begun, NT, "gemm/some.one", 2e-3, job="first", threads=1),
        put(begun, NT, "gemm/some.two", 1e-3, job="first", threads=1),  # faster, and recorded later
        put(begun, NT, "gemm/some.two", 4e-3, job="second", threads=2),  # against `one` of another job
        put(begun, NN, "gemm/some.two", 1e-3, job="first", threads=1),
        put(begun, NN, "gemm/some.one", 2e-3, job="first", threads=1),
        put(begun, "gemm/m1n1k1/f32/NN", "gemm/some.one", threads=1),  # alone
    ]
    leads = [c.lead for c in contests(rows, begun)]
    all_contests = contests(rows, begun)
    know_leads(all_contests, begun, "r1")
    begun.close()  # nothing is asked for any more
    assert [c.lead for c in all_contests] == leads
    assert [lead and lead.in_turn for lead in leads] == [True, False, True, None]


PROBLEM, OTHER = "gemm/m64n64k64/f32/NN", "gemm/m96n96k96/f32/NN"


@pytest.fixture
def measured(begun):
    """Put rows of a GPU and of NumPy, the baseline of the run; return the baseline and speedup of each GPU row."""

    def of(times, problem=PROBLEM, **more):
        ran(begun, "r1", times, problem, **more)
        all_contests = RunData(begun, "r1").contests
        return {r.kernel: (r.baseline, r.speedup) for c in all_contests for r in c.ranked if c.problem == problem}

    return of


def ran(store, run, times, problem=PROBLEM, device="cuda", **more):
    for kernel, median in times.items():
        provider = kernel.partition("/")[2].partition(".")[0]
        how = {"provider": provider, "job": "one", "device": "cpu" if provider == "numpy" else device}
        how |= {"run_id": run, "baseline": "gemm/numpy.matmul", **more.get(kernel, {})}
        put(store, problem, kernel, taken=[median] * 20, **how)


def test_numpy_and_rows_of_other_jobs_are_no_baseline_on_a_gpu_where_the_vendor_has_a_kernel(measured):
    times = {"gemm/numpy.matmul": 1.0, "gemm/cublas.sgemm": 2e-3, "gemm/cuda.a": 4e-3, "gemm/cuda.b": 4e-3}
    assert measured(times, **{"gemm/cuda.b": {"job": "two"}}) == {
        "gemm/cuda.a": ("gemm/cublas.sgemm", pytest.approx(0.5)),
        "gemm/cuda.b": ("", None),
        "gemm/cublas.sgemm": ("gemm/cublas.sgemm", None),
        "gemm/numpy.matmul": ("gemm/numpy.matmul", None),
    }


@pytest.mark.parametrize(
    ("times", "baseline", "speedup"),
    [
        ({"cublas.tnn": 1e-3, "cublaslt.a": 2e-3, "cublas.slow": 4e-3}, "cublaslt.a", 2.0),
        ({"cublaslt.a": 1e-3, "cublas.b": 1.001e-3}, "cublas.b", 1.001),
    ],
    ids=["the fastest", "cuBLAS if as fast"],
)
def test_the_baseline_is_the_vendors_fastest_that_is_one_call(measured, times, baseline, speedup):
    speedups = measured({f"gemm/{kernel}": median for kernel, median in {**times, "cuda.a": 1e-3}.items()})
    assert speedups["gemm/cuda.a"] == (f"gemm/{baseline}", pytest.approx(speedup))


def test_without_a_vendors_kernel_and_on_a_cpu_the_baseline_is_that_of_the_run(measured):
    recorded = {"gemm/cuda.a": {"speedup": 7.0}}
    assert measured({"gemm/cuda.a": 1e-3}, **recorded)["gemm/cuda.a"] == ("gemm/numpy.matmul", 7.0)
    on_cpu = measured({"gemm/cublas.b": 1e-3, "gemm/cuda.a": 1e-3}, OTHER, device="cpu", **recorded)
    assert on_cpu["gemm/cuda.a"] == ("gemm/numpy.matmul", 7.0)


def test_of_several_runs_a_contest_is_that_with_the_most_kernels_then_the_newest(store):
    pair, single = {"gemm/cublas.sgemm": 2e-3, "gemm/cuda.a": 4e-3}, {"gemm/cublas.sgemm": 9e-3}
    runs = {"r1": pair, "r2": {name: 2 * median for name, median in pair.items()}, "r3": single}
    for run, times in runs.items():
        begin(store, run)
        ran(store, run, {**times, "gemm/numpy.matmul": 1.0})
    ran(store, "r3", single, OTHER)
    data = SeveralRuns(store, list(runs))
    (contest,) = data.contests
    assert {r.run_id for r in contest.ranked} == {"r2"}
    assert {r.device for r in data.timed} == {"cuda"}
    assert store.samples("r2", contest.fastest.case) == [4e-3] * 20


@pytest.mark.parametrize("data_of", [RunData, lambda store, run: SeveralRuns(store, [run])], ids=["one", "several"])
def test_a_kernel_that_was_slow_after_the_rounds_of_its_rival_is_first_if_it_was_faster_in_turn(begun, data_of):
    for kernel, taken in (("steady", [1.01] * 20), ("slow_later", [1.0] * 20 + [1.5] * 30)):
        put(begun, PROBLEM, f"gemm/cuda.{kernel}", taken=taken, device="cuda", job="one")
    (contest,) = data_of(begun, "r1").contests
    assert ([r.kernel for r in contest.ranked], contest.lead.side) == (
        ["gemm/cuda.slow_later", "gemm/cuda.steady"],
        "faster",
    )


def test_problems_that_were_measured_in_turn_stay_together(store):
    """A later run measures one of the two problems alone, with the same kernels and another tile of one of them."""
    two = {"gemm/cublas.sgemm": 1e-3, "gemm/cuda.async": 2e-3}
    for run in ("r1", "r2"):
        begin(store, run)
    for problem in (PROBLEM, OTHER):
        ran(store, "r1", two, problem)
    ran(store, "r2", {**two, "gemm/cuda.async@BK=16": 3e-3}, PROBLEM)
    assert {c.ranked[0].run_id for c in SeveralRuns(store, ["r1", "r2"]).contests} == {"r1"}


RACES, PROCESSES, SAMPLES = 20, 5, 40
#: The standard deviation between processes and within one, as shares of the time.
BETWEEN, WITHIN = 0.006, 0.02


def race(seed, *times):
    """Return the samples of contenders that take these times, by process; all samples of a round share one drift."""
    rng = np.random.default_rng(seed)
    groups = [[] for _ in times]
    for _ in range(PROCESSES):
        drift = np.exp(rng.normal(0, 0.05, SAMPLES).cumsum() * 0.1)
        for group, time in zip(groups, times, strict=True):
            placed = time * np.exp(rng.normal(0, BETWEEN))
            group.append((placed * drift * np.exp(rng.normal(0, WITHIN, SAMPLES))).tolist())
    return groups


def decided(seed, *tiles):
    base, *groups = race(seed, 1.0, *tiles)
    return decide(base, {str(number): group for number, group in enumerate(groups)}, len(groups))


@pytest.mark.parametrize(("time", "best"), [(1.0, None), (0.95, "1")], ids=["does nothing", "5 % faster"])
def test_of_20_races_19_adopt_a_tile_only_if_it_is_faster(time, best):
    assert sum(decided(seed, 1.0, time, 1.0).best == best for seed in range(RACES)) >= 19


def test_equals_of_the_default_or_of_the_best_are_named_and_slower_and_failed_ones_are_not():
    stays, adopted = decided(1, 1.0, 1.3), decided(2, 0.8, 0.8, 0.95)
    assert (stays.best, stays.tied) == (None, ["0"])
    assert sorted([adopted.best, *adopted.tied]) == ["0", "1"]
    assert decide([[1.0] * 12] * 2, {}, 3) == ({}, None, [])


@pytest.mark.parametrize("beyond", ["", "@BK=16"])
def test_a_tile_or_default_that_used_other_cpus_is_not_raced(begun, beyond):
    for tile, factor in (("", 1.0), ("@BK=16", 0.5)):
        add(begun, f"gemm/some.tiled{tile}", "one", factor, disturbed=BEYOND if tile == beyond else "")
    data = RunData(begun, "r1")
    data.tunes = SimpleNamespace(kernel="gemm/some.tiled", spaces=[SimpleNamespace(problem=NT)])
    assert [race.decision for race in races(data)] == [({}, None, [])]


def test_the_intervals_are_wider_the_more_tiles_are_raced():
    base, tile = race(3, 1.0, 0.9)
    alone, of_three = (decide(base, {"tile": tile}, raced).ratios["tile"] for raced in (1, 3))
    assert of_three.high - of_three.low > alone.high - alone.low
