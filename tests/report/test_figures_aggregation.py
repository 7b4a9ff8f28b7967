"""Figures of the aggregation of gradients, and of the data parallelism that layers and gradients of a run give."""

from pathlib import Path

from kernelmark.bench.record.store import Layer
from kernelmark.bench.report.figures import draw
from kernelmark.bench.report.figures.aggregation import aggregations
from kernelmark.bench.report.figures.scaling import scaling_of_run
from kernelmark.bench.report.run_data import RunData
from support.rows import put

LSTM, RESNET = "aggregate/w4n1048576/f32/ef", "aggregate/w4n25502912/f32/ef"
TIMES = {"cpu.host_serial": 4.0, "cpu.host_parallel": 2.0, "cpu.tree": 3.0, "cpu.onebit": 5.0}


def summed(store, problem, times=TIMES):
    """Rows of the gradients of a network, in turn; each way takes its number of milliseconds."""
    w, n = (int(word) for word in problem.split("/")[1][1:].split("n"))
    for kernel, ms in times.items():
        numerics = {"numerics": "onebit"} if kernel == "cpu.onebit" else {}
        dims = {"w": w, "n": n, "step": "sum", "feedback": "ef"}
        put(store, problem, f"aggregate/{kernel}", ms * 1e-3, dims, **numerics)


def test_each_network_has_its_winner_and_by_how_much(begun, registry, tmp_path: Path):
    summed(begun, LSTM)
    summed(begun, RESNET, {**TIMES, "cpu.onebit": 1.0})
    kind = aggregations(RunData(begun, "r1"), registry)
    (figure,) = kind.figures
    assert figure.title == "Aggregation: the gradients of 4 workers"
    assert "LSTM: cpu.host_parallel 2x" in figure.caption
    assert "ResNet-50: cpu.onebit 3.99x" in figure.caption
    (drawn,) = draw([kind], tmp_path, pdf=False)
    assert (tmp_path / f"{drawn.name}.svg").exists()


def test_one_network_or_no_baseline_makes_no_figure(begun, registry):
    summed(begun, LSTM)
    summed(begun, RESNET, {"cpu.tree": 1.0, "cpu.ring": 1.0})
    kind = aggregations(RunData(begun, "r1"), registry)
    assert (kind.figures, kind.omitted[:31]) == ([], "fewer than two gradients were s")


def test_a_run_of_layers_and_gradients_shows_what_parallelism_gains_and_keeps_all_its_rows(begun, registry):
    for layer, part in (("gemm/m1n2000k500/f32/NT", "forward"), ("gemm/m2000n500k1/f32/TN", "backward")):
        begun.add_layer("r1", Layer("net", layer, part, 1))
        put(begun, layer, "gemm/numpy.matmul")
    summed(begun, LSTM)
    data = RunData(begun, "r1")
    (figure,) = scaling_of_run(data, registry).figures
    assert figure.title == "Data parallelism, computed: net"
    assert len(list(begun.results("r1"))) == 2 + len(TIMES)
