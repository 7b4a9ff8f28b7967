"""Verdicts on claims: from intervals alone, and from rows of a store."""

import csv
import io
import json

import msgspec
import pytest

from bench.claims import VERDICTS, claims_rows, views
from bench.claims.catalog import FOLDER, Catalog, Confirm, catalog, claims, experiment, read_table
from bench.claims.evidence import Known, gather
from bench.claims.problems import batch_of, chosen, entries, matches, plan
from bench.claims.verdict import side
from bench.measure.measurement import Part
from bench.plan.case import jobs
from bench.record.result import Result
from bench.record.store import Run
from bench.report.contest import Ratio

NT, NN = (f"gemm/m1024n2048k26752/f32/{layout}" for layout in ("NT", "NN"))
#: Every clause of the founding texts, by the beginning of its words.
CLAUSES = (
    "op_T is slower than op_N",
    "The loss by op_T reaches 3x",
    "Out-of-place transposition first, then op_N, is better",
    "In-place transposition is the costly part",
    "Accumulation by beta (gradient and update in one GEMM) beats two steps",
    "FFT convolution beats direct convolution in many cases",
    "In the frequency domain the convolution is a plain inner product",
    "That inner product, with FFTs of whole images around it, is faster",
    "64 CPU threads do no better than 32",
    "64 CPU threads do worse than 32 on small convolutions",
    "16 threads are the sweet spot",
    "Up to the sweet spot of 16, more threads are faster",
    "Builds for newer instruction sets (AVX, FMA) are faster",
    "The gain is 30-40 %",
    "The gain is largest at few threads",
    "The GPU's advantage grows with the size of the problem",
    "It comes from memory bandwidth and parallel units: 10-15x",
    "Small networks need no GPU: the size at which the GPU passes the CPU, without transfers",
    "Small networks need no GPU: the size at which the GPU passes the CPU, with transfers",
    "LSTM steps with their small GEMMs run slower on a GPU than on CPUs",
    "Throughput rises with the batch until memory is full",
    "Larger batches make layers faster an image; which gain: AlexNet",
    "Larger batches make layers faster an image; which gain: GoogLeNet",
    "Larger batches make layers faster an image; which gain: ResNet-50",
    "A GPU instance at 2-3x the price pays only beyond a 2-3x speed-up",
    "The GPU instance does more work for the same money",
    "The accelerator does more work for the same energy",
)


@pytest.fixture
def put(store):
    """Records rows: `put(kernel, problem, time, ...)`; each time a run of its own name begins if there is none."""
    begun = set()

    def record(kernel, problem, time_s, spread=0.01, run_id="r1", medians=(), **values):
        if run_id not in begun:
            begun.add(run_id)
            store.begin(Run(run_id, {}, "2026-01-01", ("mine",), "kernelmark run", {}, "c", {}))
        device = "cuda" if "/cu" in kernel else "cpu"
        samples = [time_s * (1 + spread * sign) for sign in (-1, 0, 1, 0)] * 6
        ends = {"time_s_ci95_low": time_s * (1 - spread), "time_s_ci95_high": time_s * (1 + spread)}
        identity = {"run_id": run_id, "suite": "mine", "op": kernel.partition("/")[0], "problem": problem}
        where = {"provider": "a", "device": device, "device_name": device.upper(), "mode": "cold"}
        kind = {"dtype": "f32", "numerics": "fp32", "layout": "", "status": "ok", "reason": "", "samples": 24}
        times = {"time_s_median": time_s, **ends, "interval": "within-process"}
        own = {"kernel": kernel, "threads": 2 if device == "cpu" else 1}
        own["job"] = " ".join([run_id, problem, *(str(values.get(name)) for name in ("mode", "isa", "threads"))])
        row = Result(**{**identity, **where, **kind, **own, **times, **values})
        parts = [Part(24 // len(medians), median) for median in medians]
        store.add(row, {}, samples if row.status == "ok" else [], None, parts)

    return record


@pytest.fixture
def verdict(store, registry):
    """The answer to one claim from the rows of run r1."""

    def of(claim, run_ids=("r1",), **options):
        (answer,) = claims_rows(store, run_ids, registry, only=(claim,), **options)
        return answer

    return of


@pytest.fixture
def fill(put, registry):
    """Records a row of every problem of a claim's experiment: `fill(claim, time, kernel of each operation, ...)`."""

    def of(claim, time_s, kernels, **values):
        for layer in entries(experiment(*claims([claim])), registry):
            put(kernels[layer.base.op], layer.entry.problem.id, time_s, **values)

    return of


@pytest.mark.parametrize(
    ("low", "high", "above", "below", "between"),
    [
        (1.1, 1.2, "yes", "no", "no"),
        (0.8, 0.9, "no", "yes", "no"),
        (0.9, 1.2, "not told apart", "not told apart", "no"),
        (1.3, 1.9, "yes", "no", "not told apart"),
        (1.5, 1.9, "yes", "no", "yes"),
        (1.5, 2.1, "yes", "no", "not told apart"),
        (2.1, 9.0, "yes", "no", "no"),
        (None, None, "not told apart", "not told apart", "not told apart"),
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


def test_an_interval_that_straddles_is_not_told_apart(put, verdict):
    put("gemm/scipy.sgemm", NT, 1.01, spread=0.1)
    put("gemm/scipy.sgemm", NN, 1.0, spread=0.1)
    found = verdict("op-t-slower")
    assert found.verdict == "depends"
    assert found.said[0].startswith("not told apart  scipy.sgemm: 1.01x [")


def test_where_problems_disagree_it_depends_and_says_where(put, verdict):
    for layout, spread in (("NT", 2.0), ("NN", 1.0)):
        put("gemm/scipy.sgemm", f"gemm/m1024n2048k26752/f32/{layout}", spread)
        put("gemm/scipy.sgemm_colmajor", f"gemm/m1024n2048k26752/f32/{layout}", 3.0 - spread)
    found = verdict("op-t-slower")
    assert found.verdict == "depends"
    yes, no = found.said
    assert yes.startswith("yes  scipy.sgemm: 2x [")
    assert no.startswith("no  scipy.sgemm_colmajor: 0.5x [")


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
    assert [(number.in_turn, number.answer) for number in found.findings] == [(False, "not told apart")]
    assert found.notes[-1].startswith("not measured in turn: the rows of 1 of 1 numbers, ")


def test_numbers_of_rows_measured_in_turn_have_no_such_note(put, verdict):
    put("gemm/numpy.matmul", NT, 2.0)
    put("gemm/openblas.tnn", NT, 1.0)
    found = verdict("transpose-first")
    assert [number.in_turn for number in found.findings] == [True]
    assert not any("turn" in note for note in found.notes)


def test_samples_of_different_runs_are_no_pairs(put, verdict):
    put("gemm/numpy.matmul", NT, 2.0, spread=0.5, run_id="r1")
    put("gemm/openblas.tnn", NT, 1.0, spread=0.5, run_id="r2")
    assert verdict("transpose-first", ("r1", "r2")).verdict == "not testable here"


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


RIGHT = {"numerics": "fft", "max_error": 1e-6, "error_bound": 1e-4}


def test_a_product_that_is_verified_confirms(fill, verdict):
    fill("fft-inner-product", 1.0, {"conv": "conv/pyfftw.full"}, **RIGHT)
    assert verdict("fft-inner-product").verdict == "confirmed"


def test_a_product_that_is_wrong_refutes(fill, verdict):
    wrong = {"status": "wrong", "reason": "off", "time_s_median": None, "max_error": None}
    fill("fft-inner-product", 1.0, {"conv": "conv/pyfftw.full"}, **RIGHT | wrong)
    assert verdict("fft-inner-product").verdict == "refuted"


def test_problems_without_rows_leave_a_verdict_open(put, verdict):
    put("conv/pyfftw.full", "conv/n1c80h56w56k80r3s3pad1/f32/nchw/fprop", 1.0, **RIGHT)
    found = verdict("fft-inner-product")
    assert (found.verdict, found.notes) == ("depends", ("1 of 13 problems have rows",))
    assert [f.answer for f in found.findings] == ["yes"]


def test_threads_are_compared_with_those_there_are(put, verdict, monkeypatch):
    problem = "gemm/m1024n1024k1024/f32/NN"
    for threads, time_s in ((1, 4.0), (2, 2.0), (4, 3.0), (32, 1.0)):
        put("gemm/scipy.sgemm", problem, time_s, threads=threads)
    steps = verdict("threads-up-to-16")
    assert steps.verdict == "depends"
    assert [(f.where, f.answer) for f in steps.findings] == [
        ("gemm m1024n1024k1024/NN, 2 threads against 1", "yes"),
        ("gemm m1024n1024k1024/NN, 4 threads against 2", "no"),
    ]
    assert steps.findings[0].ci95_low == pytest.approx(2.0 * 0.99 / 1.01), "two jobs, so no pairs of samples"
    monkeypatch.setattr("bench.claims.answer.cpu_count", lambda: 4)
    missing = verdict("threads-64", here=True)
    assert missing.verdict == "not testable here"
    assert missing.said[0].startswith("64 threads, of which 4 are here; over those: gemm m1024n1024k1024/NN, 2 threads")


BOTH = {"gemm": "gemm/scipy.sgemm", "conv": "conv/cpu.im2col"}


def test_more_threads_that_gain_little_confirm_that_they_do_no_better(fill, verdict):
    for threads in (16, 32, 64):
        fill("threads-64", 1.0, BOTH, spread=0.001, threads=threads)
    assert verdict("threads-64").verdict == "confirmed"
    assert verdict("threads-16").verdict == "depends"
    assert {f.where.partition(" ")[0] for f in verdict("threads-64-small").findings} == {"conv"}


def test_instruction_sets_are_compared_thread_count_by_thread_count(fill, verdict):
    for threads, isa, time_s in ((1, "sse", 6.0), (1, "avx2", 2.0), (2, "sse", 2.7), (2, "avx2", 2.0)):
        fill("isa-gain", time_s, BOTH | {"gemm": "gemm/numpy.matmul"}, threads=threads, isa=isa)
    assert verdict("isa-gain").verdict == "confirmed"
    assert [f.answer for f in verdict("isa-30-40").findings] == ["no", "yes"] * 2
    assert verdict("isa-few-threads").findings[0].ratio == pytest.approx(3 / 1.35)


def devices_at(put, *times):
    for m, cpu_s, gpu_s in times:
        put("gemm/numpy.matmul", f"gemm/m{m}n{m}k{m}/f32/NN", cpu_s, energy_j=10 * cpu_s)
        put("gemm/cublas.sgemm", f"gemm/m{m}n{m}k{m}/f32/NN", gpu_s, energy_j=20 * gpu_s)


def test_devices_are_compared_by_their_fastest_and_growth_by_size(put, verdict):
    devices_at(put, (128, 16.0, 1.0), (16, 1.0, 2.0), (32, 4.0, 1.0))
    assert [f.ratio for f in verdict("gpu-grows").findings] == [pytest.approx(8.0), pytest.approx(4.0)]
    small = verdict("gpu-small")
    assert small.verdict == "depends"
    assert [(f.where, f.answer) for f in small.findings] == [("16", "yes"), ("32", "no"), ("128", "no")]
    assert [f.answer for f in verdict("gpu-pays").findings] == ["no", "yes", "yes"]


def test_what_the_suite_cannot_measure_is_said_whatever_the_rows(put, verdict):
    devices_at(put, (16, 1.0, 2.0))
    found = verdict("gpu-small-transfers")
    assert (found.verdict, found.findings) == ("not testable here", ())
    assert "transfers" in found.said[0]


def test_rates_are_set_against_each_other_by_operation(put, verdict):
    put("copy/numpy.threaded", "copy/m8192n8192/f32", 12.0)
    put("copy/numba.streaming", "copy/m8192n8192/f32", 20.0)
    put("copy/cuda.vectorised", "copy/m8192n8192/f32", 1.0)
    put("fma/numba.fma", "fma/n98304k32768/f32", 1.0)
    put("fma/cuda.ffma", "fma/n8650752k32768/f32", 1.0)
    found = verdict("gpu-10-15x")
    assert [(f.where, f.answer) for f in found.findings] == [("fma", "no"), ("copy", "yes")]
    assert found.findings[0].ratio == pytest.approx(88.0)


def test_throughput_is_told_from_batch_to_batch(put, verdict):
    for n, time_s in ((2, 1.0), (1, 1.0), (4, 2.0)):
        put("conv/cpu.im2col", f"conv/n{n}c16h224w224k16r3s3pad1/f32/nchw/fprop", time_s)
    found = verdict("batch-throughput")
    assert found.verdict == "depends"
    assert [(f.where, f.ratio) for f in found.findings] == [
        ("1 to 2", pytest.approx(2.0)),
        ("2 to 4", pytest.approx(1.0)),
    ]


def test_layers_are_told_apart_and_networks_summed(put, verdict, registry):
    asked = experiment(*claims(["layers-alexnet"]))
    for layer in entries(asked, registry):
        kernel = "conv/cpu.im2col" if layer.base.op == "conv" else "gemm/scipy.sgemm"
        gains = layer.base.op == "gemm"
        put(kernel, layer.entry.problem.id, 1.0 if gains else float(layer.batch))
    found = verdict("layers-alexnet")
    assert found.verdict == "depends"
    assert {f.where.partition(" ")[0] for f in found.findings if f.answer == "yes"} == {"gemm"}
    assert "CPU: forward 8.00 s [7.92 s, 8.08 s] at batch 1" in found.notes
    assert "CPU: forward + backward 121 s [120 s, 122 s] at batch 8" in found.notes


def test_a_layer_counts_as_often_as_the_network_has_it(put, verdict, registry):
    for layer in entries(experiment(*claims(["layers-resnet50"])), registry):
        put("conv/cpu.im2col" if layer.base.op == "conv" else "gemm/scipy.sgemm", layer.entry.problem.id, 1.0)
    assert verdict("layers-resnet50").notes[0].startswith("CPU: forward 54.0 s ["), "53 convolutions and a product"


def test_a_layer_without_a_time_leaves_no_sum(put, verdict):
    put("gemm/scipy.sgemm", "gemm/m1n4096k4096/f32/NT", 1.0)
    put("gemm/scipy.sgemm", "gemm/m8n4096k4096/f32/NT", 1.0)
    found = verdict("layers-alexnet")
    assert (len(found.findings), found.notes[0]) == (1, "2 of 46 problems have rows")
    assert not any("forward" in note for note in found.notes)


def test_failures_are_what_is_missing(put, verdict):
    oom = {"status": "oom", "reason": "needs 3 GB", "time_s_median": None}
    put("gemm/scipy.two_step", "gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1", 1.0, **oom)
    found = verdict("beta")
    assert found.verdict == "not testable here"
    assert "scipy.two_step on gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1: oom: needs 3 GB" in found.said[0]


def test_a_run_without_rows_says_which_would_be_needed(store, put, verdict):
    put("gemm/numpy.matmul", "gemm/m8n8k8/f32/NN", 1.0)
    cpu, gpu = verdict("op-t-slower"), verdict("gpu-lstm")
    assert cpu.said[0].startswith("rows of the experiment 'op-t' (SciPy's SGEMM as NT and as NN")
    assert cpu.said[0].endswith("`kernelmark claims` without RUN measures them")
    assert gpu.said[0].endswith("measures them on a machine with a GPU")


def test_a_machine_without_a_gpu_says_so(store, registry, monkeypatch):
    monkeypatch.setattr("bench.claims.problems.cuda_missing", lambda: "no driver here")
    found = claims_rows(store, [], registry, here=True)
    assert {a.verdict for a in found} == {"not testable here"}
    assert "a GPU: no driver here" in {text for a in found for text in a.said}


def test_every_clause_is_a_claim_of_its_own():
    for clause in CLAUSES:
        assert any(claim.words.startswith(clause) for claim in catalog().claim), clause
    words = [claim.words for claim in catalog().claim]
    assert len(set(words)) == len(words)


def test_every_file_of_claims_is_read():
    names = {path.stem for path in FOLDER.glob("*.toml")} - {"prices"}
    found = [read_table(FOLDER / f"{name}.toml", Catalog) for name in sorted(names)]
    assert sum(len(file.claim) for file in found) == len(catalog().claim)
    assert all(claim.source and claim.applies and claim.number for claim in catalog().claim)


@pytest.mark.parametrize("claim", catalog().claim, ids=lambda claim: claim.id)
def test_a_claim_names_problems_and_kernels_that_exist(claim, registry):
    asked, comparison = experiment(claim), claim.comparison
    problems = {layer.entry.problem.id for layer in entries(asked, registry)}
    sides = [*comparison.one, *comparison.other]
    if comparison.kind == "problems":
        assert set(sides) <= problems
    elif comparison.kind in ("kernels", "verified"):
        assert all(_fits(glob, registry.kernels) for glob in sides)
    assert all(_fits(glob, problems) for glob in comparison.problems)
    assert all(_fits(glob, registry.kernels) for glob in (*asked.kernels, *comparison.kernels))
    assert set(comparison.other) <= {"1", "2", "4", "8", "32", "64"} or comparison.kind != "threads"


def _fits(glob, names):
    return any(matches(name, (glob,)) for name in names)


def test_a_case_has_the_same_company_in_every_experiment(registry):
    """A run keeps the first row of a case, and kernels that are compared must have been measured in turn."""
    for devices in (("cpu",), ("cpu", "cuda")):
        company = {}
        for asked in (e for e in catalog().experiment if e.device in devices):
            for planned in jobs([chosen([e]) for e in entries(asked, registry)], registry, plan(asked, devices)):
                for kernel in planned.job.kernels:
                    case = (kernel, planned.job.problems, planned.job.threads, planned.job.isa)
                    assert company.setdefault(case, planned.job.kernels) == planned.job.kernels, asked.id


def test_batches_are_put_where_images_lie(registry):
    found = entries(experiment(*claims(["layers-alexnet"])), registry)
    assert {(batch_of(e.entry.problem), e.batch) for e in found} == {(1, 1), (8, 8)}
    assert {e.entry.problem.id for e in found} >= {"gemm/m8n4096k9216/f32/NT", "gemm/m4096n9216k8/f32/TN"}


def test_what_a_run_holds_whole_is_not_missing(store, registry, put):
    asked = msgspec.structs.replace(experiment(*claims(["beta"])), processes=2)
    (first, second) = entries(asked, registry)
    for kernel in asked.kernels:
        put(kernel, first.entry.problem.id, 1.0, processes=2, threads=plan(asked, ("cpu",)).threads[0])
        put(kernel, second.entry.problem.id, 1.0, processes=1, threads=plan(asked, ("cpu",)).threads[0])
    assert Known(store, ["r1"]).lacks(asked, registry, ("cpu",)) == [second]


def test_verdicts_go_out_as_text_json_csv_and_markdown(store, registry, put, tmp_path):
    put("gemm/scipy.sgemm", NT, 2.0)
    put("gemm/scipy.sgemm", NN, 1.0)
    answers = claims_rows(store, ["r1"], registry)
    text = views.render(answers)
    assert "CONFIRMED  op-t-slower: op_T is slower" in text
    assert text.endswith(f"{len(answers)} claims: 1 confirmed, 1 refuted, {len(answers) - 2} not testable here")
    out = io.StringIO()
    views.write_json(answers, out)
    assert [found["verdict"] for found in json.loads(out.getvalue())] == [a.verdict for a in answers]
    views.write_files(tmp_path, answers, "a machine")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "claims.csv").read_text())))
    assert tuple(rows[0]) == views.COLUMNS
    assert {row["id"] for row in rows} == {a.id for a in answers}
    assert set(VERDICTS) >= {row["verdict"] for row in rows}
    lines = (tmp_path / "claims.md").read_text().splitlines()
    assert lines[0] == "# Claims: a machine"
    assert sum(line.startswith("| ") for line in lines) == len(answers) + 1


def test_a_claim_that_nobody_made_is_refused(complaint):
    assert complaint(lambda: claims(["beta", "gamma"])).startswith(
        "--only 'gamma': is no claim; expected some of op-t-"
    )


@pytest.mark.parametrize(
    ("confirm", "said"), [("", "expected one of above, below, between"), ("over = 1", "unknown field `over`")]
)
def test_a_claim_without_a_number_is_refused(tmp_path, complaint, confirm, said):
    claim = "[[claim]]\n" + "\n".join(f"{key} = 'a'" for key in ("id", "words", "applies", "experiment", "number"))
    (tmp_path / "mine.toml").write_text(f"{claim}\nconfirm = {{ {confirm} }}\ncomparison = {{ kind = 'threads' }}")
    assert said in complaint(lambda: read_table(tmp_path / "mine.toml", Catalog))


def test_the_documentation_names_every_claim_with_its_number():
    page = (FOLDER.parents[1] / "docs" / "claims.md").read_text()
    for claim in catalog().claim:
        assert f"| `{claim.id}`: {claim.words} | {claim.number} | {claim.confirm} |" in page
