"""Claims about aggregation: what a stated link adds, networks by their speedups, money by virtual CPUs, sources."""

import pytest

from kernelmark.bench.claims.catalog import catalog, claims, experiment, files
from kernelmark.bench.claims.evidence import entries
from kernelmark.bench.claims.prices import Prices, Vcpus, load_prices
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.report.strategies import EIGHT_BITS, ONE_BIT

LSTM = "aggregate/w4n1048576/f32/ef"
GPU = {"device": "cuda", "device_name": "CUDA", "threads": 1}
GRADIENT_S = 4 * 1048576 / 8e9


def test_a_stated_link_is_added_to_the_additions_that_one_worker_makes(put, verdict):
    put("aggregate/cpu.ring", LSTM, 0.004)
    put("aggregate/cpu.onebit", LSTM, 0.008, numerics="onebit")
    (found,) = verdict("onebit-pays").findings
    ring, onebit = 0.001 + 1.5 * GRADIENT_S, 0.002 + 1.5 * GRADIENT_S / ONE_BIT
    assert found.ratio == pytest.approx(ring / onebit)
    assert (found.where, found.by) == ("LSTM, 4 workers", "cpu.onebit against cpu.ring")
    assert found.in_turn


def test_the_fastest_of_threads_and_processes_stands_for_a_way(put, verdict):
    put("aggregate/cpu.ring", LSTM, 0.004)
    put("aggregate/process.ring", LSTM, 0.002)
    put("aggregate/cpu.host_parallel", LSTM, 0.004)
    (found,) = verdict("mxnet-over-torch").findings
    assert found.by == "process.ring against cpu.host_parallel"


def test_no_link_is_added_to_what_gpus_send_each_other(put, verdict):
    put("aggregate/p2p.ring", LSTM, 0.001, **GPU)
    put("aggregate/cpu.ring", LSTM, 0.002)
    put("aggregate/cpu.host_parallel", LSTM, 0.004)
    (found,) = verdict("mxnet-over-torch").findings
    assert found.by == "cpu.ring against cpu.host_parallel"


def test_sums_of_gradients_on_a_gpu_are_no_additions_of_the_cpu(put, verdict):
    put("aggregate/cuda.host_parallel", LSTM, 0.0001, **GPU)
    put("aggregate/cpu.ring", LSTM, 0.002)
    put("aggregate/cpu.host_parallel", LSTM, 0.004)
    (found,) = verdict("mxnet-over-torch").findings
    assert found.by == "cpu.ring against cpu.host_parallel"


def test_sums_between_gpus_are_set_against_those_on_the_host(put, verdict):
    put("aggregate/p2p.tree", LSTM, 0.001, **GPU)
    put("aggregate/cuda.host_parallel", LSTM, 0.004)
    (found,) = verdict("ranking-peers").findings
    assert (found.by, found.ratio) == ("p2p.tree against cuda.host_parallel", pytest.approx(4))


def test_ways_that_were_not_measured_give_no_number(put, verdict):
    put("aggregate/cpu.ring", LSTM, 0.004)
    assert verdict("onebit-pays").verdict == "not measured"


def test_all_cores_against_one_are_compared_as_they_were_measured_in_turn(put, verdict):
    for kernel, time_s in (("host_parallel", 0.001), ("host_serial", 0.002)):
        put(f"aggregate/cpu.{kernel}", LSTM, time_s)
    (found,) = verdict("host-parallel").findings
    assert (found.ratio, found.in_turn) == (pytest.approx(2), True)


def test_a_network_with_many_weights_for_its_work_scales_worse(put, verdict, registry):
    (claim,) = claims(["alexnet-scales-worse"])
    for problem in {
        layer.entry.problem.id: layer.entry.problem for layer in entries(experiment(claim), registry)
    }.values():
        kernel = {"conv": "cpu.im2col", "gemm": "scipy.sgemm", "aggregate": "cpu.tree"}
        put(f"{problem.op}/{kernel[problem.op]}", problem.id, 0.01 if problem.op != "aggregate" else 1e-9 * problem.n)
    answer = verdict(claim.id)
    assert [found.where.split(",")[0] for found in answer.findings] == [
        "googlenet against alexnet",
        "resnet50 against alexnet",
    ]
    assert all(found.ratio > 1 for found in answer.findings)
    assert answer.verdict == "confirmed"


@pytest.fixture
def on_a_gpu(put, registry):
    """Records a row of each layer of a claim's experiment on a GPU, each of the same time."""

    def record(claim, time_s):
        kernels = {"conv": "conv/cudnn.implicit_gemm", "gemm": "gemm/cublas.sgemm"}
        problems = {
            layer.entry.problem.id: layer.entry.problem for layer in entries(experiment(*claims([claim])), registry)
        }
        for problem in problems.values():
            if problem.op in kernels:
                put(kernels[problem.op], problem.id, time_s, threads=1)

    return record


ALEXNET = "aggregate/w4n62367776/f32/ef"


def test_a_speedup_is_computed_of_a_gpus_layers_its_additions_and_a_link(on_a_gpu, put, verdict):
    on_a_gpu("linear-8-p100", 0.01)
    put("aggregate/cuda.tree", ALEXNET, 0.005, **GPU)
    answer = verdict("linear-8-p100")
    (found,) = answer.findings
    layers = len(found.rows) - 1
    added = 0.005 * 9 / 5 * 3 / 7 + 2 * 3 * 4 * 62367776 / 8e9
    assert found.ratio == pytest.approx(1 / (1 + added / (0.01 * layers)))
    assert found.where == "alexnet, 8 workers"
    assert (layers, answer.notes[0]) == (23, "239 of 241 problems have rows")


def test_no_link_is_added_to_sums_that_cross_a_real_one(on_a_gpu, put, verdict):
    on_a_gpu("four-gpus-torch", 0.01)
    put("aggregate/cuda.host_parallel", ALEXNET, 0.1, **GPU)
    (found,) = verdict("four-gpus-torch").findings
    assert found.ratio == pytest.approx(4 / (1 + 0.1 / (0.01 * (len(found.rows) - 1))))


def test_a_network_of_a_suite_that_has_several_is_chosen_by_name(on_a_gpu, put, verdict):
    on_a_gpu("dense-hardly-gain", 0.01)
    for n in (14198784, 145376):
        put("aggregate/cuda.device", f"aggregate/w4n{n}/f32/ef", 1e-9 * n, **GPU)
    (found,) = verdict("dense-hardly-gain").findings
    assert found.where.startswith("cifar10 quick against transfer FCN-R, 4 workers: ")
    assert len(found.rows) == 2 + 11 + 14


def test_model_parallelism_exchanges_outputs_and_the_gradients_of_inputs(on_a_gpu, put, verdict):
    on_a_gpu("int8-model-pays-cuda", 0.1)
    for kernel, time_s in (("int8", 0.01), ("device", 0.005)):
        put(f"aggregate/cuda.{kernel}", "aggregate/w4n6990272/f32/ef", time_s, **GPU)
    (found,) = verdict("int8-model-pays-cuda").findings
    n = 1024 * (2048 + 4096 + 1024 + 10 + 2048 + 4096 + 1024) // 2
    compute = 11 * 0.1 / 4
    seconds = [t / 4 * n / 6990272 + 1.5 * 4 * n / 8e9 / by for t, by in ((0.01, EIGHT_BITS), (0.005, 1))]
    eight, full = (4 / (1 + s / compute) for s in seconds)
    assert found.ratio == pytest.approx(eight / full)


def test_work_for_money_takes_the_price_of_as_many_virtual_cpus(put, verdict):
    for threads, time_s in ((16, 0.004), (32, 0.003), (64, 0.003)):
        put("gemm/scipy.sgemm", "gemm/m1024n1024k1024/f32/NN", time_s, threads=threads)
    found = {n.where.rpartition(" ")[2]: n.ratio for n in verdict("vcpus-16-cheapest").findings}
    assert found == {"32": pytest.approx(0.75 * 0.254 / 0.127), "64": pytest.approx(0.75 * 0.509 / 0.127)}


def test_a_file_without_prices_of_virtual_cpus_gives_no_number(put, verdict):
    prices = load_prices(None)
    without = Prices(currency="USD", date="now", device=prices.device)
    for threads in (16, 64):
        put("gemm/scipy.sgemm", "gemm/m1024n1024k1024/f32/NN", 0.004, threads=threads)
    assert verdict("vcpus-16-cheapest", prices=without).verdict == "not measured"


def test_a_price_of_virtual_cpus_is_a_number_above_0():
    with pytest.raises(ValueError, match="expected a finite number above 0"):
        Vcpus(count=16, per_hour=0.0)


def test_the_name_of_a_file_asks_for_all_its_claims():
    assert [claim.id for claim in claims(["aggregation"])] == [claim.id for claim in files()["aggregation"].claim]
    assert {claim.id for claim in claims(["cost", "beta"])} == {"beta", *(c.id for c in files()["cost"].claim)}
    with pytest.raises(UsageError, match="or all of transposition, "):
        claims(["aggregations"])
    assert not files().keys() & {claim.id for claim in catalog().claim}


@pytest.mark.parametrize("claim", catalog().claim, ids=lambda claim: claim.id)
def test_each_claim_cites_a_text_with_its_year(claim):
    assert any(year in claim.cited for year in ("2016", "2017", "2020"))
    assert "founding text" not in claim.cited
