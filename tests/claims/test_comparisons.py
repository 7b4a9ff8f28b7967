"""Each kind of comparison that a claim asks for: arithmetic, threads, instruction sets, devices, batches, networks."""

import pytest

from kernelmark.bench.claims import findings
from kernelmark.bench.claims.catalog import claims, experiment
from kernelmark.bench.claims.evidence import ExperimentRows, entries
from support.rows import result

RIGHT = {"numerics": "fft", "max_error": 1e-6, "error_bound": 1e-4}


def test_a_product_that_is_verified_confirms(fill, verdict):
    fill("fft-inner-product", 1.0, {"conv": "conv/pyfftw.full"}, **RIGHT)
    assert verdict("fft-inner-product").verdict == "confirmed"


def test_a_product_that_is_wrong_refutes(fill, verdict):
    wrong = {"status": "wrong", "reason": "off", "time_s_median": None, "max_error": None}
    fill("fft-inner-product", 1.0, {"conv": "conv/pyfftw.full"}, **RIGHT | wrong)
    assert verdict("fft-inner-product").verdict == "refuted"


def test_threads_are_compared_with_those_there_are(put, verdict):
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


MLP = "gemm/m128n512k784/f32/NN"


@pytest.mark.parametrize(("claim", "threads"), [("isa-mlp", (8, 16)), ("isa-mlp-many", (32, 64))])
def test_instruction_sets_are_compared_at_the_thread_counts_of_the_claim(put, verdict, claim, threads):
    for count in (4, 8, 16, 32, 64):
        for isa in ("sse", "avx2"):
            put("gemm/numpy.matmul", MLP, 1.0, threads=count, isa=isa)
    found = [f.where.rpartition(", ")[2] for f in verdict(claim).findings]
    assert found == [f"{count} threads" for count in threads]


def test_four_gates_at_once_are_set_against_four_times_one(put, verdict):
    for m, units, k, all_s in ((20, 200, 400, 2.0), (128, 256, 512, 5.0)):
        put("gemm/scipy.sgemm", f"gemm/m{m}n{4 * units}k{k}/f32/NT", all_s)
        put("gemm/scipy.sgemm", f"gemm/m{m}n{units}k{k}/f32/NT", 1.0)
    found = verdict("lstm-one-product")
    assert [(f.where, f.ratio, f.answer) for f in found.findings] == [
        ("20x400 scipy.sgemm", pytest.approx(2.0), "yes"),
        ("128x512 scipy.sgemm", pytest.approx(0.8), "no"),
    ]


def launched_by(store, registry, *columns):
    """The findings of `cudnn-parameters` from rows of one convolution with these values of the column."""
    (claim,) = claims(["cudnn-parameters"])
    layers = entries(experiment(claim), registry)
    problem, kernels = layers[0].entry.problem.id, ("implicit_gemm", "gemm", "fft")
    rows = [
        result(problem=problem, kernel=f"conv/cudnn.{kernel}", time_s_median=1.0, launched=column)
        for kernel, column in zip(kernels, columns, strict=True)
    ]
    evidence = ExperimentRows(store, experiment(claim), layers, rows)
    return list(findings.launched(claim.comparison, evidence, rows))


#: A kernel whose name has spaces, and others, as the column gives them.
A, B = "a<float, 128><<<{},1,1 x 32,1,1>>>", "b<<<2,1,1 x 32,1,1>>>"
OTHER_A = "a<float, 64><<<9,1,1 x 32,1,1>>>"


def test_calls_that_launch_other_gpu_kernels_are_told_apart_by_their_names(store, registry):
    (found,) = launched_by(store, registry, f"{A.format(1)}; {B}", f"{B}; {A.format(9)}", f"{OTHER_A}; {B}")
    assert (found.ratio.median, found.by) == (2.0, "cudnn.implicit_gemm, cudnn.gemm, cudnn.fft")


def test_launches_that_the_column_only_counts_are_no_kernel(store, registry):
    (found,) = launched_by(store, registry, f"{B}; and 2 more", B, B)
    assert found.ratio.median == 1.0


def test_rows_that_name_no_gpu_kernels_say_nothing_of_them(store, registry):
    assert launched_by(store, registry, B, "", "") == []


def test_without_the_column_of_gpu_kernels_a_claim_is_not_measured(fill, verdict):
    fill("cudnn-parameters", 1.0, {"conv": "conv/cudnn.gemm"})
    assert verdict("cudnn-parameters").verdict == "not measured"


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


def test_layers_are_distinguished_and_networks_summed(put, verdict, registry):
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


def test_problems_without_rows_leave_a_verdict_open(put, verdict):
    put("conv/pyfftw.full", "conv/n1c80h56w56k80r3s3pad1/f32/nchw/fprop", 1.0, **RIGHT)
    found = verdict("fft-inner-product")
    assert (found.verdict, found.notes) == ("depends", ("1 of 13 problems have rows",))
    assert [f.answer for f in found.findings] == ["yes"]


def test_transfers_count_as_the_gpus_time(put, verdict):
    devices_at(put, (16, 4.0, 1.0), (32, 4.0, 1.0))
    for m, time_s in ((16, 1.0), (32, 2.0)):
        put("transfer/cuda.pinned", f"transfer/n{2 * m * m}/f32/h2d", time_s)
        put("transfer/cuda.pageable", f"transfer/n{2 * m * m}/f32/h2d", 10 * time_s)
        put("transfer/cuda.pinned", f"transfer/n{m * m}/f32/d2h", time_s)
    found = verdict("gpu-small-transfers")
    assert [(f.where, f.ratio) for f in found.findings] == [("16", pytest.approx(4 / 3)), ("32", pytest.approx(4 / 5))]
    assert (found.findings[0].ci95_low, found.findings[0].in_turn) == (pytest.approx(3.96 / 3.03), False)


def test_a_size_that_lacks_a_transfer_has_no_number(put, verdict):
    devices_at(put, (16, 4.0, 1.0))
    put("transfer/cuda.pinned", "transfer/n512/f32/h2d", 1.0)
    assert verdict("gpu-small-transfers").findings == ()


def test_gradients_are_a_share_of_all_layers_forward_and_backward(put, verdict, registry):
    asked = [layer.entry for layer in entries(experiment(*claims(["pcie-share"])), registry) if layer.entry.part]
    assert len(asked) == 11
    for entry in asked:
        put("gemm/cublas.sgemm", entry.problem.id, 1.0)
    for n, time_s in ((51200000, 2.75), (14198784, 5.5)):
        put("transfer/cuda.pinned", f"transfer/n{n}/f32/d2h", time_s)
    found = verdict("pcie-share")
    assert {f.where: (f.ratio, f.answer) for f in found.findings} == {
        "51200000": (pytest.approx(0.25), "yes"),
        "14198784": (pytest.approx(0.5), "no"),
    }
    assert "Shi" in found.source
