"""Sum a run's rows for `show`: seconds per batch of networks, shares of a training step, overlaps of transfers.

The time of a batch is the sum of the network's layer times, each multiplied by the layer's count. The share of a step
is the time to transfer the parameters, divided by the time of a batch. The transfer's time comes from a row of
`transfer`, and is scaled to the number of parameters. A published share (S. Shi et al.) is printed for comparison.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.measure.stats import MIN_SAMPLES, median_interval
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.records import Layer
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio, Setting, by_setting, grouped, is_fair, multithreaded, order, time_of
from kernelmark.bench.report.format import operation, row_time, time
from kernelmark.bench.report.layout import TableColumn, paragraph, table, table_of
from kernelmark.bench.report.noise import noise_of

COLUMNS = (
    TableColumn("network"),
    TableColumn("by", wraps=20),
    TableColumn("forward"),
    TableColumn("forward + backward", spare=1),
    TableColumn("layers", spare=2),
)
FASTEST = "the fastest of each layer"
NO_NETWORK = "no network: no suite of the run declares its problems as parts of a network"
#: The passes of a batch, with the parts of a network in each.
PASSES = {"forward": ("forward",), "forward + backward": ("forward", "backward")}


def total(layers: Iterable[tuple[int, Result | None]]) -> Ratio | None:
    """Return the total seconds of layers, each multiplied by its count; None if a layer has no time.

    The interval's ends are the sums of the layers' ends; this is valid even if all errors have the same sign.
    """
    counted = [(count, row_time(r) if r else (None, None, None)) for count, r in layers]
    weighted = ([count * time_s for count, ends in counted if (time_s := ends[at]) is not None] for at in range(3))
    median, low, high = (sum(times) if len(times) == len(counted) else None for times in weighted)
    return Ratio(median, low, high) if median else None


def network_table(layers: Sequence[Layer], results: Iterable[Result], style: str = "simple") -> str:
    """Return a table of each network's time: with the fastest kernel of each layer, and with each single kernel.

    In a kernel's line, layers of other operations have the time of their fastest kernel.
    """
    if not layers:
        return NO_NETWORK
    rows = list(results)
    titles: dict[str, list[Sequence[str]]] = defaultdict(list)
    for network, members in grouped(layers, lambda layer: layer.network).items():
        for setting, times in times_of(members, rows).items():
            titles[setting.title] += [(network, by, *cells) for by, *cells in _lines(members, times)]
    tables = (
        f"{paragraph(title, style=style)}\n{table(COLUMNS, cells, style, titled=True)}"
        for title, cells in titles.items()
    )
    noise = paragraph(noise_of(rows).sentence, style=style) if titles else ""
    return "\n\n".join(filter(None, (*tables, noise))) or "no times: no layer of the networks was timed"


def weights(forward: Iterable[tuple[int, Problem]]) -> int:
    """Return the number of weights without biases: the elements of the forward problems' second operands."""
    return sum(count * math.prod(problem.operands()[1].shape) for count, problem in forward)


def exchanged(forward: Iterable[tuple[int, Problem]]) -> int:
    """Return the number of elements whose aggregation moves as much data as a step of model parallelism.

    A step sends the outputs of all layers to all workers, and sums the gradients of all inputs except the first
    layer's. An aggregation by stripes both sums and sends each element, so it needs half as many elements as the step.
    Raises IndexError without layers.
    """
    layers = [(count, problem.operands()) for count, problem in forward]
    outputs = sum(count * o.elements for count, operands in layers for o in operands if o.role != "in")
    inputs = sum(count * operands[0].elements for count, operands in layers) - layers[0][1][0].elements
    return (outputs + inputs) // 2


def parameters(layers: Iterable[Layer], registry: Registry) -> int:
    """Return the number of weights of a network's layers, without biases."""
    return weights((layer.count, registry.problem(layer.problem)) for layer in layers if layer.part == "forward")


Times = dict[str, dict[str, Result]]  # rows by problem, then by kernel


class Batch(NamedTuple):
    """A forward and backward pass with each layer's fastest kernel: its seconds, and the rows of these kernels."""

    seconds: Ratio
    rows: list[Result]


def batches(layers: Sequence[Layer], results: Iterable[Result]) -> dict[Setting, Batch]:
    """Return the batch of a network in each setting with times of all layers, forward and backward."""
    batch_of = {}
    for setting, times in times_of(layers, results).items():
        rows = chosen(layers, times)
        if {layer.part for layer in layers} == {"forward", "backward"} and (seconds := total(rows)):
            batch_of[setting] = Batch(seconds, [r for _, r in rows if r])
    return batch_of


def times_of(layers: Sequence[Layer], results: Iterable[Result]) -> dict[Setting, Times]:
    """Return the rows of a network's layers that have a time, by setting."""
    wanted, every = {layer.problem for layer in layers}, list(results)
    timed = [r for r in every if r.problem in wanted and is_fair(r) and not order(r)]
    times: dict[Setting, Times] = {}
    for setting, rows in by_setting(timed, multithreaded(every)).items():
        times[setting] = defaultdict(dict)
        for r in rows:
            times[setting][r.problem][r.kernel] = r
    return times


def _lines(layers: Sequence[Layer], times: Times) -> Iterator[Sequence[str]]:
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
    """Return the time of the forward pass, and of both passes, as text; "" if a layer has no time."""
    forward = total(chosen([layer for layer in layers if layer.part == "forward"], times, kernel))
    has_backward = any(layer.part == "backward" for layer in layers)
    both = total(chosen(layers, times, kernel)) if has_backward else None
    return time(*forward[:3]) if forward else "", time(*both[:3]) if both else ""


def chosen(layers: Iterable[Layer], times: Times, kernel: str | None = None) -> list[tuple[int, Result | None]]:
    """Return each layer's count and row: the kernel's row if it computes the layer's operation, or else the fastest."""
    return [(layer.count, _row(times.get(layer.problem, {}), kernel)) for layer in layers]


def _row(by_kernel: dict[str, Result], kernel: str | None) -> Result | None:
    if kernel is not None and any(operation(name) == operation(kernel) for name in by_kernel):
        return by_kernel.get(kernel)
    return min(by_kernel.values(), key=lambda r: r.time_s_median or 0.0, default=None)


#: Suffixes of kernels without overlap: `serial` copies, then works; `arrived` only works, on data copied before.
SERIAL, ARRIVED = "serial", "arrived"
OVERLAPS = (
    TableColumn("problem", cell=lambda overlap: overlap.row.problem),
    TableColumn("kernel", cell=lambda overlap: fmt.short(overlap.row.kernel)),
    TableColumn("overlap", cell=lambda overlap: _with_interval(overlap.share, "{:.2f}".format)),
    TableColumn("time", "right", spare=1, cell=lambda overlap: fmt.seconds(overlap.row.time_s_median)),
    TableColumn("in turn", "right", spare=2, cell=lambda overlap: fmt.seconds(overlap.serial.time_s_median)),
    TableColumn("work alone", "right", spare=3, cell=lambda overlap: fmt.seconds(overlap.arrived.time_s_median)),
)
Found = tuple[Result, dict[str, Any]]


class Overlap(NamedTuple):
    """A transfer during multiply-adds. serial: both in sequence; arrived: multiply-adds alone; share: the overlap."""

    row: Result
    serial: Result
    arrived: Result
    share: Ratio


def overlaps(store: Reader, results: Iterable[Found]) -> Iterator[Overlap]:
    """Yield the overlap of each transfer during work, if it was measured in turn with kernels `serial` and `arrived`.

    overlap = (t_copy + t_work - t) / min(t_copy, t_work). `serial` takes t_copy + t_work, and `arrived` takes t_work.
    """
    rows = [(r, dims) for r, dims in results if r.op == "transfer" and dims.get("work") and is_fair(r) and r.job]
    for _, group in groupby(sorted(rows, key=_key), key=_key):
        contenders = [r for r, _ in group]
        ends = {name: next((r for r in contenders if _ending(r) == name), None) for name in (SERIAL, ARRIVED)}
        serial, arrived = ends[SERIAL], ends[ARRIVED]
        for r in contenders:
            if serial and arrived and _ending(r) not in ends and (share := _share(store, serial, arrived, r)):
                yield Overlap(r, serial, arrived, share)


def _key(row: Found) -> tuple[str, ...]:
    r, dims = row
    return r.job, r.provider, r.mode, r.dtype, str(dims["n"]), str(dims["work"])


def _ending(r: Result) -> str:
    return r.kernel.partition("@")[0].rpartition(".")[2]


def _share(store: Reader, *rows: Result) -> Ratio | None:
    """Return the median overlap of the rounds with its interval; None for too few rounds.

    Neighbouring rounds call the kernels in opposite order, so linear drift cancels in the sum of two rounds. If there
    are enough rounds, each overlap is computed from such a sum.
    """
    shares = []
    for groups in zip(*(store.by_process(r.run_id, r.case) for r in rows), strict=False):
        rounds = min(map(len, groups))
        each = 2 if rounds >= 2 * MIN_SAMPLES else 1
        whole = rounds // each * each
        serial, work, overlapped = (np.asarray(group[:whole]).reshape(-1, each).sum(axis=1) for group in groups)
        with np.errstate(divide="ignore"):
            shares += ((serial - overlapped) / np.minimum(serial - work, work)).tolist()
    if len(shares) < MIN_SAMPLES:
        return None
    interval = median_interval(shares)
    return Ratio(interval.median, interval.low, interval.high)


def overlap_table(store: Reader, results: Iterable[Found]) -> str:
    """Return the table of overlaps, or a line with the command that measures them."""
    measured = list(overlaps(store, results))
    if not measured:
        return paragraph(
            "no overlap: this run has no transfer with work of which six samples or more were taken in turn with the "
            "kernels `serial` and `arrived`; `kernelmark run transfer` measures some"
        )
    noise = paragraph(noise_of([r for each in measured for r in each[:3]]).sentence)
    return "\n\n".join(filter(None, (table_of(OVERLAPS, measured, titled=True), noise)))


def _with_interval(share: Ratio, write: Callable[[float], str]) -> str:
    return f"{write(share.median)} {fmt.interval(share.low, share.high, write)}".rstrip()


WAYS = ("h2d", "d2h", "h2h")
NO_SHARE = (
    "no share: a share needs times of all layers of a network, forward and backward, and the time of a transfer, "
    "on the same device, threads and mode; `kernelmark run transfer` measures transfers"
)
SHARES = (
    TableColumn("network", cell=lambda step: step.network),
    TableColumn("parameters", "right", spare=3, cell=lambda step: f"{step.parameters:,}"),
    TableColumn("moved by", cell=lambda step: fmt.short(step.row.kernel)),
    TableColumn("transfer", "right", spare=2, cell=lambda step: fmt.seconds(step.transfer.median)),
    TableColumn("forward + backward", "right", spare=4, cell=lambda step: fmt.seconds(step.batch.seconds.median)),
    TableColumn("share of the step", cell=lambda step: _with_interval(step.share, fmt.percent)),
    TableColumn("transfer from", spare=5, cell=lambda step: _origin(step)),
)


class StatedTransfer(NamedTuple):
    """Published times in seconds: to transfer a network's parameters at a rate, and to compute a batch."""

    network: str
    transfer_s: float
    bytes_per_s: float
    batch_s: float
    source: str

    @property
    def parameters(self) -> int:
        """Return the number of FP32 parameters that the published time and rate imply."""
        return round(self.transfer_s * self.bytes_per_s / 4)


#: S. Shi, Q. Wang, P. Xu, X. Chu, on a Tesla K80 with PCIe 3.0.
STATED = StatedTransfer(
    *("FCN-R", 0.0256, 8e9, 0.1), "S. Shi et al., Benchmarking State-of-the-Art Deep Learning Software Tools, 2016"
)


class TransferShare(NamedTuple):
    """The time to transfer a network's parameters: `scaled` * `row`'s time. share: transfer over batch time."""

    network: str
    parameters: int
    row: Result
    scaled: float
    transfer: Ratio
    batch: Batch
    share: Ratio


def shares(store: Store, registry: Registry, run_id: str) -> dict[Setting, list[TransferShare]]:
    """Return, by setting, the shares of a step that a run's networks spend on transfers.

    Transfer times come from this run or, if it has none, from the latest run with transfer times.
    """
    layers, results = store.layers(run_id), list(store.layer_results(run_id))
    every = [run_id, *(other for other in store.run_ids()[::-1] if other != run_id)]
    shares_of: dict[Setting, list[TransferShare]] = {}
    for network, members in grouped(layers, lambda layer: layer.network).items():
        for setting, batch in batches(members, results).items():
            moved, sizes = _moved(store, every, setting), {network: parameters(members, registry)}
            if network == STATED.network:
                sizes[f"{network}, as stated"] = STATED.parameters
            for name, size in sizes.items():
                shares_of.setdefault(setting, []).extend(_shares(name, size, moved, batch))
    return {setting: transfers for setting, transfers in shares_of.items() if transfers}


def _moved(store: Store, run_ids: Iterable[str], setting: Setting) -> list[Found]:
    """Return the FP32 transfers in a setting, without simultaneous work, from the first of these runs that has any."""

    def alike(r: Result, dims: dict[str, Any]) -> bool:
        threads = setting.device != "cpu" or r.threads == setting.threads
        return setting.includes(r) and threads and not dims["work"] and dims["direction"] in WAYS

    for run_id in run_ids:
        rows = ((r, dims) for r, dims in store.results(run_id) if r.op == "transfer" and r.dtype == "f32")
        if transfers := [(r, dims) for r, dims in rows if is_fair(r) and alike(r, dims)]:
            return transfers
    return []


def _shares(network: str, size: int, moved: Sequence[Found], batch: Batch) -> Iterator[TransferShare]:
    """Yield the share of each kernel and direction, from the row with the nearest size."""
    for group in grouped(moved, lambda row: (row[0].kernel, row[1]["direction"])).values():
        r, dims = min(group, key=lambda row: abs(math.log(size / row[1]["n"])))
        scaled = size / dims["n"]
        transfer = time_of(r).scaled(scaled)
        yield TransferShare(network, size, r, scaled, transfer, batch, transfer.over(batch.seconds))


def step_table(store: Store, registry: Registry, run_id: str) -> str:
    """Return a table for each setting, or a line on missing measurements, and then the published figures."""
    shares_of = shares(store, registry, run_id)
    parts = []
    for setting, transfers in shares_of.items():
        noise = noise_of([*{r.case: r for each in transfers for r in (each.row, *each.batch.rows)}.values()]).sentence
        drawn = table_of(SHARES, transfers, titled=True)
        parts += [f"{paragraph(setting.title)}\n{drawn}", paragraph(noise)]
    missing = NO_SHARE if store.layers(run_id) else NO_NETWORK
    parts = parts or [paragraph(missing)]
    return "\n\n".join(filter(None, (*parts, paragraph(_stated(store, registry, run_id)))))


def _origin(step: TransferShare) -> str:
    times = "" if step.scaled == 1 else f", times {step.scaled:.3g}"
    return f"{step.row.problem.removeprefix('transfer/')}{times}"


def _stated(store: Store, registry: Registry, run_id: str) -> str:
    text = (
        f"Stated, not measured: transferring {STATED.network} takes {fmt.seconds(STATED.transfer_s)} at "
        f"{fmt.size(round(STATED.bytes_per_s))}/s, {fmt.percent(STATED.transfer_s / STATED.batch_s)} of a batch of "
        f"about {fmt.seconds(STATED.batch_s)} ({STATED.source}). "
        f"That time and rate imply {STATED.parameters:,} parameters"
    )
    layers = [layer for layer in store.layers(run_id) if layer.network == STATED.network]
    return f"{text}; the network's layers have {parameters(layers, registry):,}." if layers else f"{text}."
