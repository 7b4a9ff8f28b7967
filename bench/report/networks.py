"""Seconds a batch of whole networks: the layers of a run summed, each as often as the network has it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.records import Layer
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import Ratio, Setting, by_setting, is_timed, order
from kernelmark.bench.report.format import operation, row_time, time
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.noise import noise_of

COLUMNS = (
    TableColumn("network"),
    TableColumn("by", wraps=20),
    TableColumn("forward"),
    TableColumn("forward + backward", spare=1),
    TableColumn("layers", spare=2),
)
FASTEST = "the fastest of each layer"
#: The passes of a batch, with the parts of a network that each takes.
PASSES = {"forward": ("forward",), "forward + backward": ("forward", "backward")}


def total(layers: Iterable[tuple[int, Result | None]]) -> Ratio | None:
    """Return the seconds of layers, each as often as the network has it; None where there is none or one has no time.

    The interval has the sums of the layers' ends: it holds whatever their errors have in common.
    """
    found = list(layers)
    times = [row_time(r) if r else (None, None, None) for _, r in found]
    median, low, high = (_weighted([(n, t[end]) for (n, _), t in zip(found, times, strict=True)]) for end in range(3))
    return Ratio(median, low, high) if median else None


def _weighted(values: Sequence[tuple[int, float | None]]) -> float | None:
    """Return the sum of values, each as often as it counts; None where one is not known."""
    found = [count * value for count, value in values if value is not None]
    return sum(found) if len(found) == len(values) else None


def network_table(layers: Sequence[Layer], results: Iterable[Result], style: str = "simple") -> str:
    """Return a table of the networks: each kernel with all layers of an operation, and the fastest of each layer."""
    if not layers:
        return "no network: none of the run's suites declares which part of one its problems are"
    rows = list(results)
    titles: dict[str, list[Sequence[str]]] = defaultdict(list)
    for network, own in by_network(layers).items():
        for setting, times in times_of(own, rows).items():
            titles[setting.title] += [(network, by, *cells) for by, *cells in _lines(own, times)]
    tables = (
        f"{paragraph(title, style=style)}\n{table(COLUMNS, cells, style, titled=True)}"
        for title, cells in titles.items()
    )
    noise = noise_of(rows).sentence
    parts = [*tables, *([paragraph(noise, style=style)] if noise and titles else [])]
    return "\n\n".join(parts) or "no times: none of the networks' layers has one"


def by_network(layers: Sequence[Layer]) -> dict[str, list[Layer]]:
    """Return the layers of each network."""
    names = dict.fromkeys(layer.network for layer in layers)
    return {network: [layer for layer in layers if layer.network == network] for network in names}


def weights(forward: Iterable[tuple[int, Problem]]) -> int:
    """Return the elements of the second operands of forward passes, each as often as it occurs; biases are left out."""
    return sum(count * math.prod(problem.operands()[1].shape) for count, problem in forward)


def exchanged(forward: Iterable[tuple[int, Problem]]) -> int:
    """Return of how many elements an aggregation moves as much as a step of model parallelism exchanges.

    Half of the outputs of all layers, which go to all workers, and of the gradients of their inputs but the first's,
    which are summed: an aggregation by stripes does both with each element. Raises IndexError without layers.
    """
    found = [(count, problem.operands()) for count, problem in forward]
    outputs = sum(count * o.elements for count, operands in found for o in operands if o.role != "in")
    inputs = sum(count * operands[0].elements for count, operands in found) - found[0][1][0].elements
    return (outputs + inputs) // 2


def parameters(layers: Iterable[Layer], registry: Registry) -> int:
    """Return the weights of a network's layers."""
    return weights((layer.count, registry.problem(layer.problem)) for layer in layers if layer.part == "forward")


Times = dict[str, dict[str, Result]]  # by problem, by kernel


class Batch(NamedTuple):
    """A batch forward and backward, by the fastest kernel of each layer: seconds, and the rows that they are of."""

    seconds: Ratio
    rows: list[Result]


def batches(layers: Sequence[Layer], results: Iterable[Result]) -> dict[Setting, Batch]:
    """Return the batch of a network in each setting in which all its layers, forward and backward, have a time."""
    found = {}
    for setting, times in times_of(layers, results).items():
        chosen = [(layer.count, fastest_of(times.get(layer.problem, {}))) for layer in layers]
        if {layer.part for layer in layers} == {"forward", "backward"} and (seconds := total(chosen)):
            found[setting] = Batch(seconds, [r for _, r in chosen if r])
    return found


def times_of(layers: Sequence[Layer], results: Iterable[Result]) -> dict[Setting, Times]:
    """Return the rows of a network's layers that have a time, by setting."""
    wanted = {layer.problem for layer in layers}
    found: dict[Setting, Times] = {}
    for setting, rows in by_setting(r for r in results if r.problem in wanted and is_timed(r) and not order(r)).items():
        found[setting] = defaultdict(dict)
        for r in rows:
            found[setting][r.problem][r.kernel] = r
    return found


def _lines(layers: Sequence[Layer], times: Times) -> Iterator[Sequence[str]]:
    """Yield the cells of each way to run a network: who, forward, forward and backward, layers that have a time."""
    measured = sum(layer.problem in times for layer in layers)
    whole = f"{measured} of {len(layers)}"
    yield FASTEST, *_sums(layers, times, None), whole
    operations = {operation(layer.problem) for layer in layers}
    for kernel in dict.fromkeys(kernel for by_kernel in times.values() for kernel in by_kernel):
        op = operation(kernel)
        others = "" if operations == {op} else f", {FASTEST} for the rest"
        sums = _sums(layers, times, kernel)
        if any(sums):
            yield f"{kernel}{others}", *sums, whole


def _sums(layers: Sequence[Layer], times: Times, kernel: str | None) -> tuple[str, str]:
    """Return the time of forward, and of forward and backward; empty where a layer has no time."""
    chosen = [(layer.part, layer.count, fastest_of(times.get(layer.problem, {}), kernel)) for layer in layers]
    forward = total((count, r) for part, count, r in chosen if part == "forward")
    has_backward = any(part == "backward" for part, *_ in chosen)
    both = total((count, r) for _, count, r in chosen) if has_backward else None
    return time(*forward[:3]) if forward else "", time(*both[:3]) if both else ""


def fastest_of(by_kernel: dict[str, Result], kernel: str | None = None) -> Result | None:
    """Return this kernel's time for a layer of its own operation; the fastest for those of the others."""
    if kernel is not None and any(operation(name) == operation(kernel) for name in by_kernel):
        return by_kernel.get(kernel)
    return min(by_kernel.values(), key=lambda r: r.time_s_median or 0.0, default=None)
