"""Seconds a batch of whole networks: the layers of a run summed, each as often as the network has it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tabulate import tabulate

from bench.plan.dtypes import precision
from bench.record.reader import Layer
from bench.record.result import Result
from bench.report.standings import Setting
from bench.report.tables import seconds

HEADERS = ("network", "by", "forward", "forward + backward", "layers")
FASTEST = "the fastest of each layer"


class Sum(NamedTuple):
    """Seconds, with the sums of the intervals' ends: they hold whatever the layers' errors have in common."""

    median: float
    ends: tuple[float, float] | None

    def __str__(self) -> str:
        interval = f" [{seconds(self.ends[0])}, {seconds(self.ends[1])}]" if self.ends else ""
        return seconds(self.median) + interval


def network_table(layers: Sequence[Layer], results: Iterable[Result], style: str = "simple") -> str:
    """A table of the networks: each kernel that has all layers of an operation, and the fastest of each layer."""
    if not layers:
        return "no network: none of the run's suites says which part of one its problems are"
    rows = list(results)
    titles: dict[str, list[Sequence[str]]] = defaultdict(list)
    for network in dict.fromkeys(layer.network for layer in layers):
        own = [layer for layer in layers if layer.network == network]
        for setting, times in _by_setting(own, rows).items():
            titles[setting.title] += [(network, by, *cells) for by, *cells in _lines(own, times)]
    tables = (f"{title}\n{tabulate(cells, HEADERS, tablefmt=style)}" for title, cells in titles.items())
    return "\n\n".join(tables) or "no times: none of the networks' layers has one"


Times = dict[str, dict[str, Result]]  # by problem, by kernel


def _by_setting(layers: Sequence[Layer], results: Iterable[Result]) -> dict[Setting, Times]:
    wanted = {layer.problem for layer in layers}
    threads = _thread_counts(results)
    found: dict[Setting, Times] = defaultdict(lambda: defaultdict(dict))
    for r in results:
        if r.problem in wanted and r.time_s_median is not None:
            # A kernel with one thread stands beside the threaded ones, since no more can be had of it.
            name = ", ".join(filter(None, (r.device_name, r.isa)))
            for count in threads if r.threads == 1 else (r.threads,):
                setting = Setting(r.device, name, count, r.mode, precision(r.dtype, r.numerics))
                found[setting][r.problem].setdefault(r.kernel, r)
    return found


def _thread_counts(results: Iterable[Result]) -> tuple[int, ...]:
    return tuple(sorted({r.threads for r in results if r.threads > 1})) or (1,)


def _lines(layers: Sequence[Layer], times: Times) -> Iterator[Sequence[str]]:
    """The cells of each way to run a network: who, forward, forward and backward, layers that have a time."""
    measured = sum(layer.problem in times for layer in layers)
    whole = f"{measured} of {len(layers)}"
    yield FASTEST, *_sums(layers, times, None), whole
    operations = {layer.problem.partition("/")[0] for layer in layers}
    for kernel in dict.fromkeys(kernel for by_kernel in times.values() for kernel in by_kernel):
        op = kernel.partition("/")[0]
        others = "" if operations == {op} else f", {FASTEST} for the rest"
        sums = _sums(layers, times, kernel)
        if any(sums):
            yield f"{kernel}{others}", *sums, whole


def _sums(layers: Sequence[Layer], times: Times, kernel: str | None) -> tuple[str, str]:
    """Forward, and forward and backward; empty where a layer has no time."""
    forward = _sum([layer for layer in layers if layer.part == "forward"], times, kernel)
    has_backward = any(layer.part == "backward" for layer in layers)
    both = _sum(layers, times, kernel) if has_backward else None
    return str(forward or ""), str(both or "")


def _sum(layers: Sequence[Layer], times: Times, kernel: str | None) -> Sum | None:
    found = [(layer.count, _chosen(times.get(layer.problem, {}), kernel)) for layer in layers]
    chosen = [(count, result) for count, result in found if result is not None]
    if not layers or len(chosen) < len(layers):
        return None
    ends = [
        (n * r.time_s_ci95_low, n * r.time_s_ci95_high)
        for n, r in chosen
        if r.time_s_ci95_low is not None and r.time_s_ci95_high is not None
    ]
    whole = (sum(low for low, _ in ends), sum(high for _, high in ends)) if len(ends) == len(chosen) else None
    return Sum(sum(n * (r.time_s_median or 0.0) for n, r in chosen), whole)


def _chosen(by_kernel: dict[str, Result], kernel: str | None) -> Result | None:
    """This kernel's time for a layer of its own operation; the fastest for those of the others."""
    if kernel is not None and any(name.partition("/")[0] == kernel.partition("/")[0] for name in by_kernel):
        return by_kernel.get(kernel)
    return min(by_kernel.values(), key=lambda r: r.time_s_median or 0.0, default=None)
