"""Networks: seconds a batch, the share of a step that moving parameters takes, and computed data-parallel speedups."""

import pytest

from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Layer, Store
from kernelmark.bench.report.contest import Ratio, parallel
from kernelmark.bench.report.figures.scaling import scaling_figures
from kernelmark.bench.report.networks import STATED, network_table, parameters, shares, step_table
from kernelmark.bench.report.scaling import ScalingQuestion, compared, computed, render
from kernelmark.bench.report.strategies import STRATEGIES
from support.rows import BEYOND, DISTURBED, begin, fail, put, result

CONV, BACK, DENSE = "conv/a/f32/nchw/fprop", "conv/a/f32/nchw/wgrad", "gemm/b/f32/NT"
LAYERS = [Layer("net", CONV, "forward", 2), Layer("net", DENSE, "forward", 1), Layer("net", BACK, "backward", 3)]


def row(kernel, problem, time_s, **values):
    columns = {"op": kernel.partition("/")[0], "kernel": kernel, "problem": problem, "device_name": "d", "threads": 2}
    ends = {"time_s_ci95_low": 0.9 * time_s, "time_s_ci95_high": 1.2 * time_s} if time_s else {}
    return result(**{**columns, "time_s_median": time_s, **ends, **values})


ROWS = [
    row("conv/a.x", CONV, 1.0),
    row("conv/a.y", CONV, 2.0),
    row("conv/a.x", BACK, 5.0),
    row("conv/a.y", BACK, 4.0),
    row("gemm/a.z", DENSE, 10.0),
    row("gemm/a.w", DENSE, 20.0),
]


def cells(layers, rows):
    lines = [line.split("  ") for line in network_table(layers, rows).splitlines()[3:]]
    table = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {by: rest for _, by, *rest in table}


def test_layers_are_summed_as_often_as_they_occur_and_a_kernel_is_joined_by_the_fastest_of_other_operations():
    table = cells(LAYERS, ROWS)
    assert table["the fastest of each layer"] == ["12.0 s [10.8 s, 14.4 s]", "24.0 s [21.6 s, 28.8 s]", "3 of 3"]
    of_x = ["12.0 s [10.8 s, 14.4 s]", "27.0 s [24.3 s, 32.4 s]"]
    assert table["conv/a.x, the fastest of each layer for the rest"][:2] == of_x
    assert table["gemm/a.w, the fastest of each layer for the rest"][0] == "22.0 s [19.8 s, 26.4 s]"


def test_a_layer_without_a_time_or_an_interval_leaves_no_sum_or_no_interval_of_it():
    table = cells(LAYERS, [r for r in ROWS if r.problem != BACK])
    assert table["the fastest of each layer"] == ["12.0 s [10.8 s, 14.4 s]", "2 of 3"]
    assert table["conv/a.x, the fastest of each layer for the rest"] == ["12.0 s [10.8 s, 14.4 s]", "2 of 3"]
    assert not any("conv/a.x" in by for by in cells(LAYERS, ROWS[1:]))
    bare = [row("conv/a.x", CONV, 1.0, time_s_ci95_low=None), *ROWS[1:]]
    assert cells(LAYERS, bare)["the fastest of each layer"][0] == "12.0 s"


def test_one_thread_stands_beside_two_and_precisions_stay_apart():
    rows = [row("conv/a.x", CONV, 1.0, threads=1), *ROWS[4:], row("conv/a.h", CONV, 0.5, numerics="tf32")]
    text = network_table(LAYERS[:2], rows)
    assert "d, 2 threads, cold, fp32" in text
    assert "d, 2 threads, cold, tf32" in text
    assert "12.0 s" in text


@pytest.mark.parametrize(("layers", "said"), [([], "no network: "), (LAYERS, "no times: ")])
def test_what_is_missing_is_said(layers, said):
    assert network_table(layers, [row("conv/a.x", CONV, None)]).startswith(said)


FORWARD, TN, NN = "gemm/m1n2000k500/f32/NT", "gemm/m2000n500k1/f32/TN", "gemm/m1n500k2000/f32/NN"
#: Weights of the network below, in which the layer occurs twice.
WEIGHTS = 2_000_000
GRADIENT = 4 * WEIGHTS


def exactly(low, median, high):
    return {"time_s_median": median, "time_s_ci95_low": low, "time_s_ci95_high": high}


def network(store, run_id="r1", name="net", without=(), **values):
    """Put a batch of 0.1 s [0.09 s, 0.12 s]: a layer that the network has twice, forward and backward."""
    begin(store, run_id)
    for problem, part, third in ((FORWARD, "forward", 0.4), (TN, "backward", 0.3), (NN, "backward", 0.3)):
        store.add_layer(run_id, Layer(name, problem, part, 2))
        if problem not in without:
            half = third / 2 * 0.1
            put(store, problem, "gemm/a.b", run_id=run_id, **exactly(0.9 * half, half, 1.2 * half), **values)


@pytest.fixture
def known(store):
    network(store)
    return store


def moved(store, kernel, n, seconds, way="h2h", work=0, run_id="r1", **values):
    dims = {"n": n, "direction": way, "node": "", "work": work}
    problem = f"transfer/n{n}/f32/{way}" + f"/work{work}" * bool(work)
    put(store, problem, f"transfer/{kernel}", dims=dims, taken=[seconds] * 8, run_id=run_id, numerics="exact", **values)


def found_shares(store, registry):
    all_shares = (share for every in shares(store, registry, "r1").values() for share in every)
    return {(share.row.kernel.partition("/")[2], share.row.problem.split("/")[3]): share for share in all_shares}


def test_parameters_are_weights_as_often_as_the_network_has_the_layer(registry):
    layers = [Layer("net", FORWARD, "forward", 2), Layer("net", TN, "backward", 2)]
    convolution = Layer("net", "conv/n1c80h56w56k40r3s3pad1/f32/nchw/fprop", "forward", 1)
    assert parameters(layers, registry) == WEIGHTS
    assert parameters([*layers, convolution], registry) == WEIGHTS + 40 * 80 * 3 * 3


@pytest.mark.parametrize(("part", "scaled", "of_step"), [(1, 1.0, 0.2), (2, 2.0, 0.4)])
def test_the_share_is_the_transfer_that_is_nearest_in_size_over_forward_and_backward(
    known, registry, part, scaled, of_step
):
    moved(known, "numpy.copyto", WEIGHTS // part, 0.02)
    moved(known, "numpy.copyto", 100, 1.0)
    share = found_shares(known, registry)["numpy.copyto", "h2h"]
    assert (share.parameters, share.scaled, share.share.median) == (WEIGHTS, scaled, pytest.approx(of_step))


def test_transfers_with_work_or_measured_otherwise_are_none_of_it(known, registry):
    moved(known, "numba.staged", WEIGHTS, 0.02, work=64)
    moved(known, "numpy.copyto", WEIGHTS, 0.02, threads=1)
    moved(known, "numba.streaming", WEIGHTS, 0.02, mode="hot")
    moved(known, "numba.parallel", WEIGHTS, 0.02, disturbed=BEYOND)
    moved(known, "cuda.pinned", WEIGHTS, 0.02, way="h2d", device="cuda", device_name="A GPU")
    assert found_shares(known, registry) == {}
    assert step_table(known, registry, "r1").startswith("no share: ")


def test_a_run_without_transfers_takes_those_of_the_latest_that_has_some(store, registry):
    for run_id, seconds in (("r0", 0.03), ("r2", 0.02)):
        begin(store, run_id)
        moved(store, "numpy.copyto", WEIGHTS, seconds, run_id=run_id)
    network(store)
    assert found_shares(store, registry)["numpy.copyto", "h2h"].share.median == pytest.approx(0.2)


def test_on_a_gpu_each_direction_has_its_share(store, registry):
    gpu = {"device": "cuda", "device_name": "A GPU", "threads": 1}
    network(store, **gpu)
    for way, seconds in (("h2d", 0.02), ("d2h", 0.01), ("bidir", 0.03)):
        moved(store, "cuda.pinned", WEIGHTS, seconds, way=way, **gpu)
    medians = {way: share.share.median for (_, way), share in found_shares(store, registry).items()}
    assert medians == {"h2d": pytest.approx(0.2), "d2h": pytest.approx(0.1)}


def test_the_texts_figure_and_the_layers_both_stand(store, registry):
    network(store, name="FCN-R")
    moved(store, "numpy.copyto", WEIGHTS, 0.02)
    text = " ".join(step_table(store, registry, "r1").split())
    assert "20 % [" in text
    assert "FCN-R, as stated 51,200,000 numpy.copyto 512 ms" in text
    assert "FCN-R takes 25.6 ms at 8.00 GB/s, 26 % of a batch of about 100 ms" in text
    assert f"That time and rate imply {STATED.parameters:,} parameters; the network's layers have {WEIGHTS:,}." in text
    assert STATED.parameters == 51_200_000


def test_the_suite_has_both_sizes_and_all_layers(registry):
    entries = list(find_suite("transfer", registry).entries())
    layers = [Layer(e.network, e.problem.id, e.part, e.count) for e in entries if e.network]
    sizes = {e.problem.n for e in entries if e.problem.op == "transfer" and e.problem.direction == "h2d"}
    assert {layer.network for layer in layers} == {STATED.network}
    assert parameters(layers, registry) == 14_198_784
    assert sizes >= {STATED.parameters, 14_198_784}


def addition(store, kernel, w, median, n=WEIGHTS, run_id="r1", words="", **values):
    ends = exactly(0.9 * median, median, 1.1 * median)
    dims = {"w": w, "n": n, "step": "update" if "update" in words else "sum", "feedback": "plain"}
    problem = f"aggregate/w{w}n{n}/f32{words}"
    return put(store, problem, f"aggregate/{kernel}", dims=dims, run_id=run_id, **{**ends, **values})


def model(store, registry, workers=(4,), link=GRADIENT / 0.01, name="net"):
    """Return the model of a network whose gradient takes 10 ms on the link."""
    with Store(store.path) as opened:  # a separate Store, since `computed` restricts the rows that it returns
        return computed(opened, registry, ScalingQuestion(name, workers, link), None, None)


def points(store, registry, workers=(4,), **more):
    (section,) = model(store, registry, workers, **more).sections
    return {(point.kernel.partition(".")[2], point.workers): point for point in section.points}


def test_the_formula_is_that_of_the_page_and_the_interval_has_the_worst_of_both_rows(known, registry):
    addition(known, "cpu.host_serial", 4, 0.03)
    (point,) = points(known, registry).values()
    assert point.speedup.median == pytest.approx(4 / (1 + (0.03 + 0.02) / 0.1))
    assert point.speedup.low == pytest.approx(4 / (1 + (0.033 + 0.02) / 0.09))
    assert point.speedup.high == pytest.approx(4 / (1 + (0.027 + 0.02) / 0.12))
    assert point.hidden.median == 4


def test_what_is_hidden_costs_what_is_longer_than_the_batch_and_a_missing_interval_is_none_of_the_model():
    assert parallel(8, Ratio(1.0), Ratio(4.0), hidden=True).median == 2
    assert parallel(8, Ratio(1.0), Ratio(0.5), hidden=True).median == 8
    assert parallel(2, Ratio(1.0), Ratio(1.0, 0.9, 1.1))[:3] == (1.0, None, None)


def test_stripes_are_added_by_all_workers_and_compressed_ones_take_less_of_the_link(known, registry):
    for kernel in ("ring", "int8", "onebit", "bf16", "tree"):
        addition(known, f"cpu.{kernel}", 4, 0.04)
    addition(known, "cpu.host_parallel", 4, 0.04, disturbed=BEYOND)
    made = {name: (p.aggregation.median, p.link_s) for (name, _), p in points(known, registry).items()}
    ring = 0.01 * 2 * 3 / 4
    assert made == {
        "ring": pytest.approx((0.01, ring)),
        "bf16": pytest.approx((0.01, ring / 2)),
        "int8": pytest.approx((0.01, ring * 260 / 1024)),
        "onebit": pytest.approx((0.01, ring * 72 / 2048)),
        "tree": pytest.approx((0.04 * 2 / 3, 0.04)),
    }


def test_one_worker_has_nothing_to_add_or_send_and_only_strategies_by_stripes_have_model_parallelism(known, registry):
    for kernel in STRATEGIES:
        addition(known, f"cpu.{kernel}", 4, 0.03)
    assert {p.speedup.median for p in points(known, registry, (1,)).values()} == {1.0}
    (section,) = model(known, registry).sections
    assert {p.kernel.partition(".")[2] for p in section.divided} == {"device", "ring", "bf16", "int8"}


def test_a_row_of_other_sizes_is_scaled_by_what_it_moves_and_shown_with_the_factor(known, registry):
    addition(known, "cpu.host_serial", 2, 0.001, n=10)
    addition(known, "cpu.host_serial", 8, 0.03, n=WEIGHTS // 2)
    (point,) = points(known, registry, (16,)).values()
    assert point.scaled == pytest.approx(17 / 9 * 2)
    assert point.aggregation.median == pytest.approx(0.03 * 17 / 9 * 2)
    addition(known, "cpu.host_serial", 8, 0.03)
    text = render(model(known, registry, (8, 16)))
    assert "w8n2000000/f32, times 1.89" in text
    assert "w8n2000000/f32\n" in text


def test_sums_on_the_host_of_gradients_on_a_gpu_need_no_stated_link(store, registry):
    gpu = {"device": "cuda", "device_name": "Some GPU", "threads": 1}
    network(store, **gpu)
    addition(store, "cuda.host_serial", 4, 0.03, **gpu)
    (point,) = points(store, registry).values()
    assert (point.link_s, point.aggregation.median) == (0.0, 0.03)


#: The elements whose aggregation moves as much as the network below exchanges: outputs of two layers, inputs of one.
EXCHANGED = (2 * 2000 + 500) // 2


def test_model_parallelism_shares_one_batch_and_exchanges_outputs_and_gradients_of_inputs(known, registry):
    for kernel in ("ring", "int8"):
        addition(known, f"cpu.{kernel}", 4, 0.02, n=EXCHANGED)
    made = model(known, registry, link=4 * EXCHANGED / 0.01)
    (section,) = made.sections
    added = {"cpu.ring": 0.005 + 0.01 * 1.5, "cpu.int8": 0.005 + 0.01 * 1.5 * 260 / 1024}
    assert made.exchanged == EXCHANGED
    assert {p.kernel.partition("/")[2]: p.speedup.median for p in section.divided} == {
        kernel: pytest.approx(4 / (1 + seconds / (0.1 / 4))) for kernel, seconds in added.items()
    }
    text = " ".join(render(made).split())
    assert "Model parallelism: the workers share one batch" in text
    assert "gradients of inputs, 18.0 kB in FP32." in text


def test_the_row_of_the_nearest_number_of_workers_is_taken_with_the_update_or_for_model_parallelism_without(
    known, registry
):
    addition(known, "cpu.ring", 4, 0.01)
    addition(known, "cpu.ring", 4, 0.02, words="/update")
    addition(known, "cpu.ring", 8, 0.03)
    (section,) = model(known, registry, (2, 4, 7)).sections
    near, plain, far = f"w4n{WEIGHTS}/f32/update", f"w4n{WEIGHTS}/f32", f"w8n{WEIGHTS}/f32"
    assert [p.row.problem.split("/", 1)[1] for p in section.points] == [near, near, far]
    assert [p.row.problem.split("/", 1)[1] for p in section.divided] == [plain, plain, far]


def test_additions_are_taken_from_the_same_device_threads_and_mode_with_a_time_and_a_model(known, registry):
    addition(known, "cpu.host_serial", 4, 0.01, threads=1)
    addition(known, "cpu.host_parallel", 4, 0.01, threads=1)
    addition(known, "cpu.host_parallel", 4, 0.02, threads=2)
    addition(known, "cpu.tree", 4, 0.01, threads=8)
    addition(known, "cpu.ring", 4, 0.01, mode="hot")
    addition(known, "cuda.device", 4, 0.01, device="cuda", device_name="Some GPU")
    addition(known, "mine.gossip", 4, 0.01)
    addition(known, "p2p.ring", 4, 0.01)  # its time includes what its GPUs send each other
    fail(known, f"aggregate/w4n{WEIGHTS}/f32", "aggregate/cpu.int8", dims={"w": 4, "n": WEIGHTS})
    threads = {name: p.row.threads for (name, _), p in points(known, registry).items()}
    assert threads == {"host_serial": 1, "host_parallel": 2}


def test_the_latest_runs_that_have_the_rows_are_taken_and_named(store, registry):
    network(store, "r1")
    addition(store, "cpu.host_serial", 4, 0.01, run_id="r1")
    network(store, "r2")
    begin(store, "r3")
    made = model(store, registry)
    assert (made.compute_run, made.aggregation_run) == ("r2", "r1")
    assert "runs r2 (layers) and r1 (additions)" in " ".join(render(made).split())


def test_missing_layers_or_networks_are_one_line_with_the_command_that_measures_them(store, registry, complaint):
    network(store, name="alexnet", without=(NN,))
    assert complaint(lambda: model(store, registry, name="alexnet")) == (
        f"alexnet: no run in {store.path} has times of all its layers, forward and backward; "
        "`kernelmark run alexnet` measures them"
    )
    line = complaint(lambda: model(store, registry, name="net"))
    assert line.startswith(f"net: no run in {store.path} has layers of this network, only of alexnet; `kernelmark run")


def test_missing_aggregations_are_one_line_with_the_command_that_measures_them(known, registry, complaint):
    addition(known, "cpu.host_serial", 4, 0.01, mode="hot")
    assert complaint(lambda: model(known, registry, (1, 4, 96))) == (
        f"net: no run in {known.path} has an aggregation in the layers' setting "
        f"(Some CPU, 2 threads, cold, fp32); `kernelmark run aggregate/w2n{WEIGHTS}/f32/update "
        f"aggregate/w4n{WEIGHTS}/f32/update aggregate/w8n{WEIGHTS}/f32/update` measures it"
    )


def test_what_the_texts_state_stands_beside_the_same_strategy_and_number_of_workers(known, registry):
    for kernel in ("host_serial", "host_parallel", "onebit", "ring", "int8"):
        addition(known, f"cpu.{kernel}", 4, 0.01)
    (section,) = model(known, registry, (4, 96)).sections
    beside = {(s.what, s.words, p.kernel.partition(".")[2], p.workers) for s, p in compared(section.points)}
    assert beside == {
        ("CNTK on 4 GPUs", "3.6-3.8x", "onebit", 4),
        ("Torch and PyTorch on 4 GPUs", "3.6-3.8x", "host_parallel", 4),
        ("TensorFlow on 4 GPUs", "2-3x", "host_serial", 4),
        ("8 bits on 96 GPUs", "50x", "int8", 96),
        ("32 bits on 96 GPUs", "23x", "ring", 96),
        ("CNTK, 1 bit and block momentum, on 96 GPUs", "90-95x", "onebit", 96),
    }


def test_the_figure_says_that_it_is_computed_and_points_of_noisy_rows_are_reported_and_hollow(known, registry):
    addition(known, "cpu.host_serial", 4, 0.01)
    assert scaling_figures(model(known, registry, (4,))).figures == []
    (figure,) = scaling_figures(model(known, registry, (1, 2, 4))).figures
    assert "not measured" in figure.caption
    assert "noise" not in figure.caption
    addition(known, "cpu.onebit", 4, 0.01, disturbed=DISTURBED)
    assert "NOISY: 1 of 5 cases" in render(model(known, registry))
    (figure,) = scaling_figures(model(known, registry, (1, 2, 4))).figures
    assert figure.caption.endswith(" Hollow: from rows measured under noise.")
    (axes,) = figure.draw().axes
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in hollow] == [[1, 2, 4]]
