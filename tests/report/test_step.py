"""The share of a training step that moving the parameters takes, and what the founding text states of it."""

import pytest

from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Layer
from kernelmark.bench.report.networks import STATED, parameters, shares, step_table
from support.rows import DISTURBED, begin, put

FORWARD, BACKWARD = "gemm/m1n2000k500/f32/NT", "gemm/m2000n500k1/f32/TN"
#: Of a network that has the layer twice.
WEIGHTS = 2_000_000


@pytest.fixture
def network(store):
    """Begins a run with a step of 0.1 s [0.099 s, 0.101 s]."""

    def of(run_id="r1", name="net", **values):
        begin(store, run_id)
        for problem, part in ((FORWARD, "forward"), (BACKWARD, "backward")):
            store.add_layer(run_id, Layer(name, problem, part, 2))
            put(store, problem, "gemm/a.b", taken=[0.025] * 8, run_id=run_id, **values)

    return of


def moved(store, kernel, n, seconds, way="h2h", work=0, run_id="r1", **values):
    """A transfer that takes exactly so long."""
    words = f"/work{work}" if work else ""
    dims = {"n": n, "direction": way, "node": "", "work": work}
    problem = f"transfer/n{n}/f32/{way}{words}"
    taken = [seconds] * 8
    put(store, problem, f"transfer/{kernel}", dims=dims, taken=taken, run_id=run_id, numerics="exact", **values)


def found(store, registry, run_id="r1"):
    own = (share for every in shares(store, registry, run_id).values() for share in every)
    return {(share.row.kernel.partition("/")[2], share.row.problem.split("/")[3]): share for share in own}


def test_parameters_are_weights_as_often_as_the_network_has_the_layer(registry):
    layers = [Layer("net", FORWARD, "forward", 2), Layer("net", BACKWARD, "backward", 2)]
    convolution = Layer("net", "conv/n1c80h56w56k40r3s3pad1/f32/nchw/fprop", "forward", 1)
    assert parameters(layers, registry) == WEIGHTS
    assert parameters([*layers, convolution], registry) == WEIGHTS + 40 * 80 * 3 * 3


def test_the_share_is_the_transfer_over_forward_and_backward(store, registry, network):
    network()
    moved(store, "numpy.copyto", WEIGHTS, 0.02)
    share = found(store, registry)["numpy.copyto", "h2h"]
    assert (share.parameters, share.scaled, share.share.median) == (WEIGHTS, 1.0, pytest.approx(0.2))


def test_the_transfer_that_is_nearest_in_size_stands_for_the_parameters(store, registry, network):
    network()
    moved(store, "numpy.copyto", WEIGHTS // 2, 0.02)
    moved(store, "numpy.copyto", 100, 1.0)
    share = found(store, registry)["numpy.copyto", "h2h"]
    assert (share.scaled, share.share.median) == (2.0, pytest.approx(0.4))


def test_transfers_with_work_or_measured_otherwise_are_none_of_it(store, registry, network):
    network()
    moved(store, "numba.staged", WEIGHTS, 0.02, work=64)
    moved(store, "numpy.copyto", WEIGHTS, 0.02, threads=1)
    moved(store, "numba.streaming", WEIGHTS, 0.02, mode="hot")
    moved(store, "cuda.pinned", WEIGHTS, 0.02, way="h2d", device="cuda", device_name="A GPU")
    assert found(store, registry) == {}
    assert step_table(store, registry, "r1").startswith("no share: ")


def test_a_run_without_transfers_takes_those_of_the_latest_that_has_some(store, registry, network):
    for run_id, seconds in (("r0", 0.03), ("r2", 0.02)):
        begin(store, run_id)
        moved(store, "numpy.copyto", WEIGHTS, seconds, run_id=run_id)
    network()
    assert found(store, registry)["numpy.copyto", "h2h"].share.median == pytest.approx(0.2)


def test_on_a_gpu_each_direction_has_its_share(store, registry, network):
    gpu = {"device": "cuda", "device_name": "A GPU", "threads": 1}
    network(**gpu)
    for way, seconds in (("h2d", 0.02), ("d2h", 0.01), ("bidir", 0.03)):
        moved(store, "cuda.pinned", WEIGHTS, seconds, way=way, **gpu)
    medians = {way: share.share.median for (_, way), share in found(store, registry).items()}
    assert medians == {"h2d": pytest.approx(0.2), "d2h": pytest.approx(0.1)}


def test_the_texts_figure_and_the_layers_both_stand(store, registry, network):
    network(name="FCN-R")
    moved(store, "numpy.copyto", WEIGHTS, 0.02)
    text = " ".join(step_table(store, registry, "r1").split())
    assert "20 % [" in text
    assert "FCN-R, as stated 51,200,000 numpy.copyto 512 ms" in text
    assert "FCN-R takes 25.6 ms at 8.00 GB/s of about 100 ms, 26 % of a batch" in text
    assert f"That is {STATED.parameters:,} parameters; its layers have {WEIGHTS:,}." in text
    assert STATED.parameters == 51_200_000


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_no_line_is_wider_than_the_terminal(store, registry, network, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    network(name="a-network-with-a-long-name", disturbed=DISTURBED)
    none = step_table(store, registry, "r1")
    moved(store, "numpy.copyto", WEIGHTS, 0.02)
    some = step_table(store, registry, "r1")
    assert [line for line in f"{none}\n{some}".splitlines() if len(line) > int(columns)] == []
    assert "NOISY" in some


def test_the_suite_has_both_sizes_and_all_layers(registry):
    entries = list(find_suite("transfer", registry).entries())
    layers = [Layer(e.network, e.problem.id, e.part, e.count) for e in entries if e.network]
    sizes = {e.problem.n for e in entries if e.problem.op == "transfer" and e.problem.direction == "h2d"}
    assert {layer.network for layer in layers} == {STATED.network}
    assert parameters(layers, registry) == 14_198_784
    assert sizes >= {STATED.parameters, 14_198_784}
