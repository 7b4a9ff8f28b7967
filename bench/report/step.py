"""The share of a training step that moving the parameters takes: their transfer over the batch, forward and backward.

Both are measured: the batch is the sum of the network's layers, the transfer a row of `transfer`, times the elements
that the network has over those of the row. What the founding text states stands beside it, computed from its figures.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.records import Layer
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio, Setting, is_timed, time_of
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.networks import Batch, batches, by_network, parameters
from kernelmark.bench.report.noise import noise_of

WAYS = ("h2d", "d2h", "h2h")
COLUMNS = (
    TableColumn("network"),
    TableColumn("parameters", "right", spare=3),
    TableColumn("moved by"),
    TableColumn("transfer", "right", spare=2),
    TableColumn("forward + backward", "right", spare=4),
    TableColumn("share of the step"),
    TableColumn("transfer from", spare=5),
)
Found = tuple[Result, dict[str, Any]]


class StatedTransfer(NamedTuple):
    """What a text states: the seconds of a transfer at a rate, beside those of a batch."""

    network: str
    transfer_s: float
    bytes_per_s: float
    batch_s: float
    source: str

    @property
    def parameters(self) -> int:
        """Return the FP32 elements that its two figures come to."""
        return round(self.transfer_s * self.bytes_per_s / 4)


#: S. Shi, Q. Wang, P. Xu, X. Chu, on a Tesla K80 with PCIe 3.0.
STATED = StatedTransfer(
    *("FCN-R", 0.0256, 8e9, 0.1),
    "S. Shi et al., Benchmarking State-of-the-Art Deep Learning Software Tools, 2016",
)


class TransferShare(NamedTuple):
    """One network's parameters by one row of `transfer`, of whose time theirs is `scaled` times."""

    network: str
    parameters: int
    row: Result
    scaled: float
    transfer: Ratio
    batch: Batch
    share: Ratio


def shares(store: Store, registry: Registry, run_id: str) -> dict[Setting, list[TransferShare]]:
    """Return the shares of a run's networks by setting; the transfers are of that run, or of the latest with any."""
    layers, results = store.layers(run_id), list(store.layer_results(run_id))
    every = [run_id, *(other for other in store.run_ids()[::-1] if other != run_id)]
    found: dict[Setting, list[TransferShare]] = {}
    for network, own in by_network(layers).items():
        for setting, batch in batches(own, results).items():
            moved, sizes = _moved(store, every, setting), {network: parameters(own, registry)}
            if network == STATED.network:
                sizes[f"{network}, as stated"] = STATED.parameters
            for name, size in sizes.items():
                found.setdefault(setting, []).extend(_shares(name, size, moved, batch))
    return {setting: own for setting, own in found.items() if own}


def _moved(store: Store, run_ids: Iterable[str], setting: Setting) -> list[Found]:
    """Return the FP32 transfers without work of the first of these runs that has any in a setting."""

    def alike(r: Result, dims: dict[str, Any]) -> bool:
        threads = setting.device != "cpu" or r.threads == setting.threads
        same = (r.device, r.device_name, r.mode, r.isa) == (
            setting.device,
            setting.device_name,
            setting.mode,
            setting.isa,
        )
        return same and threads and not dims["work"] and dims["direction"] in WAYS

    for run_id in run_ids:
        rows = ((r, dims) for r, dims in store.results(run_id) if r.op == "transfer" and r.dtype == "f32")
        if own := [(r, dims) for r, dims in rows if is_timed(r) and alike(r, dims)]:
            return own
    return []


def _shares(network: str, size: int, moved: Sequence[Found], batch: Batch) -> Iterator[TransferShare]:
    """Yield the share by each kernel in each direction, of its row that is nearest in size."""
    by_kernel: dict[tuple[str, str], list[Found]] = {}
    for r, dims in moved:
        by_kernel.setdefault((r.kernel, dims["direction"]), []).append((r, dims))
    for own in by_kernel.values():
        r, dims = min(own, key=lambda found: abs(math.log(size / found[1]["n"])))
        scaled = size / dims["n"]
        transfer = time_of(r).scaled(scaled)
        yield TransferShare(network, size, r, scaled, transfer, batch, transfer.over(batch.seconds))


def step_table(store: Store, registry: Registry, run_id: str, style: str = "simple") -> str:
    """Return a table for each setting, and what the founding text states; a line where something is missing."""
    found = shares(store, registry, run_id)
    parts = []
    for setting, own in found.items():
        parts.append(
            f"{paragraph(setting.title, style=style)}\n{table(COLUMNS, [*map(_cells, own)], style, titled=True)}"
        )
        noise = noise_of([*{r.case: r for each in own for r in (each.row, *each.batch.rows)}.values()]).sentence
        parts += [paragraph(noise, style=style)] if noise else []
    if not parts:
        parts = [paragraph(_missing(store.layers(run_id)), style=style)]
    return "\n\n".join([*parts, paragraph(_stated(store, registry, run_id), style=style)])


def _cells(found: TransferShare) -> Sequence[str]:
    r, share = found.row, found.share
    times = "" if found.scaled == 1 else f", times {found.scaled:.3g}"
    interval = fmt.interval(share.low, share.high, fmt.percent)
    return (
        found.network,
        f"{found.parameters:,}",
        fmt.short(r.kernel),
        fmt.seconds(found.transfer.median),
        fmt.seconds(found.batch.seconds.median),
        f"{fmt.percent(share.median)} {interval}".rstrip(),
        f"{r.problem.removeprefix('transfer/')}{times}",
    )


def _missing(layers: Sequence[Layer]) -> str:
    if not layers:
        return "no network: none of the run's suites declares which part of one its problems are"
    return (
        "no share: it takes times of all layers of a network, forward and backward, and of a transfer on the same "
        "device, threads and mode; `kernelmark run transfer` measures transfers"
    )


def _stated(store: Store, registry: Registry, run_id: str) -> str:
    """Return the text's figures, and what its network's layers come to where the run has them."""
    text = (
        f"Stated, not measured: {STATED.network} takes {fmt.seconds(STATED.transfer_s)} at "
        f"{fmt.size(round(STATED.bytes_per_s))}/s of about {fmt.seconds(STATED.batch_s)}, "
        f"{fmt.percent(STATED.transfer_s / STATED.batch_s)} of a batch ({STATED.source}). "
        f"That is {STATED.parameters:,} parameters"
    )
    own = [layer for layer in store.layers(run_id) if layer.network == STATED.network]
    return f"{text}; its layers have {parameters(own, registry):,}." if own else f"{text}."
