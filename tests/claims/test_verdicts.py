"""Verdicts of claims, comparisons between kernels, and how both are written."""

import msgspec
import pytest

from kernelmark.bench.claims import views
from kernelmark.bench.claims.answer import claims_rows, side
from kernelmark.bench.claims.catalog import Confirm, claims, experiment
from kernelmark.bench.claims.evidence import Known, entries, planned, thread_counts
from kernelmark.bench.measure.disturbance import beyond
from kernelmark.bench.report.contest import BEYOND, Ratio
from support.texts import csv_rows, text_of

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
    (finding,) = slower.findings
    assert (finding.where, finding.answer) == ("scipy.sgemm", "yes")
    assert (finding.ratio, finding.ci95_low) == (pytest.approx(2.0), pytest.approx(2.0 * 0.99 / 1.01))
    assert slower.interval == "within-process"
    assert finding.rows == slower.rows == (f"r1 gemm/scipy.sgemm {NN} cold t2", f"r1 gemm/scipy.sgemm {NT} cold t2")


def test_a_claim_depends_if_problems_disagree_and_names_them(put, verdict):
    for m, two_step_s in ((2048, 2.0), (4096, 0.5)):
        problem = f"gemm/m{m}n2048k1024/f32/TN/alpha-0.01/beta1"
        put("gemm/scipy.sgemm", problem, 1.0)
        put("gemm/scipy.two_step", problem, two_step_s)
    answer = verdict("beta")
    assert answer.verdict == "depends"
    yes, no = answer.said
    assert yes.startswith("yes  2048x2048x1024 (scipy.sgemm against scipy.two_step): 2x [")
    assert no.startswith("no  4096x2048x1024 (scipy.sgemm against scipy.two_step): 0.5x [")


def test_the_founding_call_is_row_major_and_the_column_major_one_is_a_separate_claim(put, verdict):
    for layout, time_s in (("NT", 2.0), ("NN", 1.0)):
        put("gemm/scipy.sgemm", f"gemm/m1024n2048k26752/f32/{layout}", time_s)
        put("gemm/scipy.sgemm_colmajor", f"gemm/m1024n2048k26752/f32/{layout}", 3.0 - time_s)
    made, other = verdict("op-t-slower"), verdict("op-t-slower-colmajor")
    assert (made.verdict, made.findings[0].where) == ("confirmed", "scipy.sgemm")
    assert (other.verdict, other.findings[0].where) == ("refuted", "scipy.sgemm_colmajor")
    assert "OP_T" in made.applies


def test_kernels_of_one_job_are_compared_round_by_round(put, verdict):
    put("gemm/numpy.matmul", NT, 2.0, spread=0.5)
    put("gemm/openblas.tnn", NT, 1.0, spread=0.5)
    put("gemm/numpy.tnn", NT, 9.0, spread=0.5)
    answer = verdict("transpose-first")
    (finding,) = answer.findings
    assert finding.ci95_low == pytest.approx(2.0), "the common spread cancels"
    assert (finding.by, finding.in_turn) == ("openblas.tnn against numpy.matmul", True)
    assert not any("turn" in note for note in answer.notes)


def test_problems_of_different_jobs_are_not_paired_and_a_note_names_them(put, verdict):
    for problem, factor in ((NT, 1.1), (NN, 1.0)):
        medians = [factor * time_s for time_s in (1.0, 3.0, 2.0)]
        put("gemm/scipy.sgemm", problem, 2.0 * factor, spread=0.5, medians=medians, processes=3)
    answer = verdict("op-t-slower")
    assert [(number.in_turn, number.answer) for number in answer.findings] == [(False, "tie")]
    assert answer.notes[-1].startswith("not measured in turn: 1 of 1 numbers, ")


def test_a_kernel_can_be_compared_with_one_on_another_problem(put, verdict):
    put("gemm/openblas.inplace", NT, 3.0)
    put("gemm/numpy.matmul", NT, 1.5)
    put("gemm/numpy.matmul", NN, 1.0)
    answer = verdict("in-place-costly")
    assert (answer.verdict, [f.where for f in answer.findings]) == ("confirmed", ["openblas.inplace"])


def test_the_rows_of_the_run_with_most_kernels_count_and_then_the_latest(put, verdict):
    put("gemm/numpy.matmul", NT, 1.0, run_id="r1")
    put("gemm/numpy.tnn", NT, 1.0, run_id="r1")
    put("gemm/numpy.matmul", NT, 2.0, run_id="r2")
    assert verdict("transpose-first", ("r1", "r2")).run_ids == ("r1",)
    put("gemm/numpy.tnn", NT, 2.0, run_id="r2")
    assert verdict("transpose-first", ("r1", "r2")).run_ids == ("r2",)


def test_rows_of_the_required_number_of_processes_are_preferred_to_later_rows(put, verdict):
    for run_id, processes, nt in (("r1", 3, 2.0), ("r2", 1, 1.0)):
        for problem, time_s in ((NT, nt), (NN, 1.0)):
            put("gemm/scipy.sgemm", problem, time_s, run_id=run_id, processes=processes)
    answer = verdict("op-t-slower", ("r1", "r2"))
    assert (answer.run_ids, answer.verdict) == (("r1",), "confirmed")


def test_failures_are_reported_as_missing_and_named_in_the_csv(put, verdict):
    oom = {"status": "oom", "reason": "needs 3 GB", "time_s_median": None}
    put("gemm/scipy.two_step", "gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1", 1.0, **oom)
    answer = verdict("beta")
    assert answer.verdict == "not measured"
    assert answer.rows == ("r1 gemm/scipy.two_step gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1 cold t2",)
    assert "scipy.two_step on gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1: oom: needs 3 GB" in answer.said[0]
    (row,) = csv_rows(text_of(lambda out: views.write_csv([answer], out)))
    assert (row["verdict"], row["run_ids"], row["rows"]) == ("not measured", "r1", answer.rows[0])


@pytest.mark.parametrize(
    ("status", "verdict_", "reason"),
    [("oom", "depends", "oom: needs 3 GB"), ("unsupported", "confirmed", ""), ("ok", "depends", BEYOND)],
)
def test_a_claim_is_not_confirmed_if_a_kernel_failed_on_a_problem(put, verdict, status, verdict_, reason):
    first, second = (f"gemm/m{m}n2048k1024/f32/TN/alpha-0.01/beta1" for m in (2048, 4096))
    for problem in (first, second):
        put("gemm/scipy.sgemm", problem, 1.0)
    put("gemm/scipy.two_step", first, 2.0)
    values = {"disturbed": beyond("2, 3")} if status == "ok" else {"reason": "needs 3 GB", "time_s_median": None}
    put("gemm/scipy.two_step", second, 1.0, status=status, **values)
    answer = verdict("beta")
    assert answer.verdict == verdict_
    note = f"no number for 1 problem: gemm/scipy.two_step on {second}: {reason}"
    assert (note in answer.notes) is bool(reason)


def test_a_claim_without_rows_names_the_rows_that_it_needs(store, put, verdict):
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


def lacks(store, run_ids, experiment_, registry):
    how, jobs = planned(experiment_, registry, ("cpu",))
    return [problem for each in Known(store, run_ids).lacks(how, jobs, registry) for problem in each.job.problems]


def test_a_problem_that_a_run_has_completely_is_not_missing(store, registry, put):
    experiment_ = msgspec.structs.replace(experiment(*claims(["beta"])), processes=2)
    (first, second) = entries(experiment_, registry)
    for kernel in experiment_.kernels:
        put(kernel, first.entry.problem.id, 1.0, processes=2, threads=thread_counts(experiment_)[0])
        put(kernel, second.entry.problem.id, 1.0, processes=1, threads=thread_counts(experiment_)[0])
    assert lacks(store, ["r1"], experiment_, registry) == [second.entry.problem.id]


def test_rows_with_their_variants_are_preferred_to_later_rows_without(put, verdict):
    for problem, time_s in ((NT, 2.0), (NN, 1.0)):
        put("gemm/scipy.sgemm", problem, time_s, spread=0.5, job="together")
    put("gemm/scipy.sgemm", NT, 9.0, run_id="r2")
    answer = verdict("op-t-slower", ("r1", "r2"))
    assert answer.run_ids == ("r1",)
    assert answer.findings[0].ci95_low == pytest.approx(2.0), "the common spread cancels"


def test_variants_are_missing_together_unless_one_run_has_them_all(store, registry, put):
    experiment_ = experiment(*claims(["op-t-slower"]))
    for run_id, problem in (("r1", NT), ("r2", NN)):
        for kernel in experiment_.kernels:
            put(kernel, problem, 1.0, run_id=run_id, processes=5)
    assert lacks(store, ["r1", "r2"], experiment_, registry) == [NT, NN]
    for kernel in experiment_.kernels:
        put(kernel, NT, 1.0, run_id="r2", processes=5)
    assert lacks(store, ["r1", "r2"], experiment_, registry) == []


RIGHT = {"numerics": "fft", "max_error": 1e-6, "error_bound": 1e-4}
WRONG = {"status": "wrong", "reason": "off", "time_s_median": None, "max_error": None}


@pytest.mark.parametrize(
    ("claim", "kernel", "row", "expected"),
    [
        ("fft-inner-product", "pyfftw.full", RIGHT, "confirmed"),
        ("fft-inner-product", "pyfftw.full", RIGHT | WRONG, "refuted"),
        ("cudnn-parameters", "cudnn.gemm", {}, "not measured"),  # without the column of GPU kernels
    ],
)
def test_verified_rows_confirm_and_wrong_rows_refute(fill, verdict, claim, kernel, row, expected):
    fill(claim, 1.0, {"conv": f"conv/{kernel}"}, **row)
    assert verdict(claim).verdict == expected


def test_thread_counts_are_compared_as_far_as_there_are_rows(put, verdict):
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


BOTH = {"gemm": "gemm/scipy.sgemm", "conv": "conv/cpu.im2col"}


def test_a_small_gain_of_more_threads_confirms_that_they_do_no_better(fill, verdict):
    for threads in (16, 32, 64):
        fill("threads-64", 1.0, BOTH, spread=0.001, threads=threads)
    assert (verdict("threads-64").verdict, verdict("threads-16").verdict) == ("confirmed", "depends")
    assert {f.where.partition(" ")[0] for f in verdict("threads-64-small").findings} == {"conv"}


def test_instruction_sets_are_compared_at_each_thread_count(fill, verdict):
    for threads, isa, time_s in ((1, "sse", 6.0), (1, "avx2", 2.0), (2, "sse", 2.7), (2, "avx2", 2.0)):
        fill("isa-gain", time_s, BOTH | {"gemm": "gemm/numpy.matmul"}, threads=threads, isa=isa)
    assert verdict("isa-gain").verdict == "confirmed"
    assert [f.answer for f in verdict("isa-30-40").findings] == ["no", "yes"] * 2
    assert verdict("isa-few-threads").findings[0].ratio == pytest.approx(3 / 1.35)


MLP = "gemm/m128n512k784/f32/NN"


@pytest.mark.parametrize(("claim", "threads"), [("isa-mlp", (8, 16)), ("isa-mlp-many", (32, 64))])
def test_instruction_sets_are_compared_at_the_thread_counts_of_the_claim(put, verdict, claim, threads):
    for count in (4, 8, 16, 32, 64):
        for isa in ("sse", "avx2"):
            put("gemm/numpy.matmul", MLP, 1.0, threads=count, isa=isa)
    assert [f.where.rpartition(", ")[2] for f in verdict(claim).findings] == [f"{count} threads" for count in threads]


def test_four_gates_in_one_product_are_compared_with_four_products(put, verdict):
    for m, units, k, all_s in ((20, 200, 400, 2.0), (128, 256, 512, 5.0)):
        put("gemm/scipy.sgemm", f"gemm/m{m}n{4 * units}k{k}/f32/NT", all_s)
        put("gemm/scipy.sgemm", f"gemm/m{m}n{units}k{k}/f32/NT", 1.0)
    answer = verdict("lstm-one-product")
    assert [f.ratio for f in answer.findings] == pytest.approx([2.0, 0.8])
    assert {f.where: f.answer for f in answer.findings} == {"20x400 scipy.sgemm": "yes", "128x512 scipy.sgemm": "no"}


#: Launches as the column names them; the name of A has spaces.
A, B = "a<float, 128><<<{},1,1 x 32,1,1>>>", "b<<<2,1,1 x 32,1,1>>>"
OTHER_A = "a<float, 64><<<9,1,1 x 32,1,1>>>"


@pytest.mark.parametrize(
    ("columns", "number"),
    [
        ((f"{A.format(1)}; {B}", f"{B}; {A.format(9)}", f"{OTHER_A}; {B}"), [2.0]),  # distinguished by names, not grids
        ((f"{B}; and 2 more", B, B), [1.0]),  # launches that are only counted name no kernel
        ((B, "", ""), []),
    ],
)
def test_calls_that_launch_different_gpu_kernels_are_counted_if_the_rows_name_them(
    put, verdict, registry, columns, number
):
    problem = entries(experiment(*claims(["cudnn-parameters"])), registry)[0].entry.problem.id
    for kernel, launched in zip(("implicit_gemm", "gemm", "fft"), columns, strict=True):
        put(f"conv/cudnn.{kernel}", problem, 1.0, launched=launched)
    findings = verdict("cudnn-parameters").findings
    assert [finding.ratio for finding in findings] == number
    assert {finding.by for finding in findings} <= {"cudnn.implicit_gemm, cudnn.gemm, cudnn.fft"}


def devices_at(put, *times):
    for m, cpu_s, gpu_s in times:
        put("gemm/numpy.matmul", f"gemm/m{m}n{m}k{m}/f32/NN", cpu_s, energy_j=10 * cpu_s)
        put("gemm/cublas.sgemm", f"gemm/m{m}n{m}k{m}/f32/NN", gpu_s, energy_j=20 * gpu_s)


def test_devices_are_compared_by_their_fastest_kernels_and_growth_by_size(put, verdict):
    devices_at(put, (128, 16.0, 1.0), (16, 1.0, 2.0), (32, 4.0, 1.0))
    assert [f.ratio for f in verdict("gpu-grows").findings] == [pytest.approx(8.0), pytest.approx(4.0)]
    small = verdict("gpu-small")
    assert small.verdict == "depends"
    assert [(f.where, f.answer) for f in small.findings] == [("16", "yes"), ("32", "no"), ("128", "no")]
    assert [f.answer for f in verdict("gpu-pays").findings] == ["no", "yes", "yes"]


def test_rates_are_compared_by_operation(put, verdict):
    put("copy/numpy.threaded", "copy/m8192n8192/f32", 12.0)
    put("copy/numba.streaming", "copy/m8192n8192/f32", 20.0)
    put("copy/cuda.vectorised", "copy/m8192n8192/f32", 1.0)
    put("fma/numba.fma", "fma/n98304k32768/f32", 1.0)
    put("fma/cuda.ffma", "fma/n8650752k32768/f32", 1.0)
    answer = verdict("gpu-10-15x")
    assert [(f.where, f.answer) for f in answer.findings] == [("fma", "no"), ("copy", "yes")]
    assert answer.findings[0].ratio == pytest.approx(88.0)


def test_throughput_is_compared_from_batch_to_batch(put, verdict):
    for n, time_s in ((2, 1.0), (1, 1.0), (4, 2.0)):
        put("conv/cpu.im2col", f"conv/n{n}c16h224w224k16r3s3pad1/f32/nchw/fprop", time_s)
    answer = verdict("batch-throughput")
    assert answer.verdict == "depends"
    assert [f.where for f in answer.findings] == ["1 to 2", "2 to 4"]
    assert [f.ratio for f in answer.findings] == pytest.approx([2.0, 1.0])


def test_layers_are_distinguished_and_networks_summed(put, verdict, registry):
    experiment_ = experiment(*claims(["layers-alexnet"]))
    for layer in entries(experiment_, registry):
        kernel = "conv/cpu.im2col" if layer.base.op == "conv" else "gemm/scipy.sgemm"
        put(kernel, layer.entry.problem.id, 1.0 if layer.base.op == "gemm" else float(layer.batch))
    answer = verdict("layers-alexnet")
    assert answer.verdict == "depends"
    assert {f.where.partition(" ")[0] for f in answer.findings if f.answer == "yes"} == {"gemm"}
    assert "CPU: forward 8.00 s [7.92 s, 8.08 s] at batch 1" in answer.notes
    assert "CPU: forward + backward 121 s [120 s, 122 s] at batch 8" in answer.notes


def test_a_layer_counts_as_often_as_the_network_has_it(fill, verdict):
    fill("layers-resnet50", 1.0, BOTH)
    assert verdict("layers-resnet50").notes[0].startswith("CPU: forward 54.0 s ["), "53 convolutions and a product"


def test_problems_without_rows_leave_a_verdict_open(put, verdict):
    put("conv/pyfftw.full", "conv/n1c80h56w56k80r3s3pad1/f32/nchw/fprop", 1.0, **RIGHT)
    answer = verdict("fft-inner-product")
    assert (answer.verdict, answer.notes) == ("depends", ("1 of 13 problems have rows",))
    assert [f.answer for f in answer.findings] == ["yes"]


def test_transfers_count_as_the_gpus_time(put, verdict):
    devices_at(put, (16, 4.0, 1.0), (32, 4.0, 1.0), (128, 4.0, 1.0))
    put("transfer/cuda.pinned", f"transfer/n{2 * 128 * 128}/f32/h2d", 1.0)  # without a transfer back
    for m, time_s in ((16, 1.0), (32, 2.0)):
        put("transfer/cuda.pinned", f"transfer/n{2 * m * m}/f32/h2d", time_s)
        put("transfer/cuda.pageable", f"transfer/n{2 * m * m}/f32/h2d", 10 * time_s)
        put("transfer/cuda.pinned", f"transfer/n{m * m}/f32/d2h", time_s)
    answer = verdict("gpu-small-transfers")
    assert [(f.where, f.ratio) for f in answer.findings] == [("16", pytest.approx(4 / 3)), ("32", pytest.approx(4 / 5))]
    assert (answer.findings[0].ci95_low, answer.findings[0].in_turn) == (pytest.approx(3.96 / 3.03), False)


def test_gradients_are_a_share_of_all_layers_forward_and_backward(put, verdict, registry):
    gradients = [layer.entry for layer in entries(experiment(*claims(["pcie-share"])), registry) if layer.entry.part]
    assert len(gradients) == 11
    for entry in gradients:
        put("gemm/cublas.sgemm", entry.problem.id, 1.0)
    for n, time_s in ((51200000, 2.75), (14198784, 5.5)):
        put("transfer/cuda.pinned", f"transfer/n{n}/f32/d2h", time_s)
    answer = verdict("pcie-share")
    assert {f.where: (f.ratio, f.answer) for f in answer.findings} == {
        "51200000": (pytest.approx(0.25), "yes"),
        "14198784": (pytest.approx(0.5), "no"),
    }
    assert "Shi" in answer.source


def test_verdicts_are_written_as_text_csv_markdown_and_on_the_page(store, registry, put, tmp_path):
    for layout, time_s in (("NT", 2.0), ("NN", 1.0)):
        put("gemm/scipy.sgemm", f"gemm/m1024n2048k26752/f32/{layout}", time_s)
    answers = claims_rows(store, ["r1"], registry)
    text = views.render(answers)
    assert "CONFIRMED  op-t-slower: op_T is slower" in text
    assert text.endswith(f"{len(answers)} claims: 1 confirmed, 1 refuted, {len(answers) - 2} not measured")
    views.write_files(tmp_path, answers, "a machine")
    rows = csv_rows(tmp_path / "claims.csv")
    assert tuple(rows[0]) == views.COLUMNS
    assert {row["id"] for row in rows} == {a.id for a in answers}
    names = "r1 gemm/scipy.sgemm gemm/m1024n2048k26752/f32/N{} cold t2"
    answered = [(row["rows"], row["in_turn"], row["answer"]) for row in rows if row["ratio"]]
    assert answered == [(f"{names.format('N')}; {names.format('T')}", "no", answer) for answer in ("yes", "no")]
    lines = (tmp_path / "claims.md").read_text().splitlines()
    assert lines[0] == "# Claims: a machine"
    assert sum(line.startswith("| ") for line in lines) == len(answers) + 1
    shown = views.statements(answers)["shown"]
    assert {statement["lines"][-1] for statement in shown} == {"2 rows of r1, named in claims.csv"}
