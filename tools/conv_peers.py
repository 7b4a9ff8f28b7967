"""Print how our convolutions compare with oneDNN's, as Markdown: the table of docs/convolution.md.

`python tools/conv_peers.py [--db FILE] [--run RUN] [--network NAME] [--layers FILE.csv]` reads a run of the suite
conv-peers; --layers also writes a row for each layer. A ratio is the speed of our fastest kernel divided by oneDNN's
(`conv/torch.conv2d`); bench/report/contest.py computes it from samples taken in turn. Our kernels are all kernels that
come with kernelmark except oneDNN, whatever library they call for products or transforms.

The ends of the interval of a geometric mean are the geometric means of the layers' lower ends and of their upper ends,
as for the sums of `show --by network`. The interval is valid even if all layers share their errors, and wider than
necessary if errors are independent. It covers measurement errors, not the choice of layers.
"""

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.suites import Suite, find_suite
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio, Setting, contests, grouped, is_timed
from kernelmark.bench.report.crossover import find_run
from kernelmark.bench.report.layout import github_table, in_markdown
from kernelmark.bench.report.noise import MARK, is_noisy, noise_of

ONEDNN = "conv/torch.conv2d"
DIRECTIONS = ("fprop", "dgrad", "wgrad")
GROUP = ("network", "n", "layout", "direction")
SUMMARY = (*GROUP, "layers", "geometric mean", "worst layer", "its ratio")
#: The columns of --layers. ratio, low, high: the speed of our kernel divided by oneDNN's, with its 95 % interval.
LAYERS = (*GROUP, "layer", "kernel", "ratio", "low", "high", "onednn_gflop_per_s", "noisy")
FLATTERS = """A ratio is the rate of our kernel with the least median over the rate of oneDNN, with its 95 % interval;
above 1x our kernel is faster. Our kernel is chosen by the samples from which the ratio is computed, so the ratio is too
high: among kernels that are about equal, the luckiest is chosen. `~` marks a ratio with a row that other load
disturbed, and `tie` an interval that includes 1. The interval of a geometric mean runs from the geometric mean of its
layers' lower ends to that of their upper ends."""


class Layer(NamedTuple):
    """A layer of a network in one direction, layout and batch."""

    network: str
    problem: Any

    @property
    def name(self) -> str:
        _, sizes, _, _, _, *words = self.problem.id.split("/")
        return " ".join([sizes.removeprefix(f"n{self.problem.n}"), *words])

    @property
    def group(self) -> tuple[str, int, str, str]:
        return self.network, self.problem.n, self.problem.layout, self.problem.direction


class Pair(NamedTuple):
    """Our fastest kernel on a layer, oneDNN, and the ratio of their rates."""

    ours: Result
    peer: Result
    ratio: Ratio

    @property
    def shown(self) -> str:
        return f"{MARK * any(map(is_noisy, (self.ours, self.peer)))}{self.ratio.words}"


#: Each layer with its pair, or with the reason why it has none.
Outcomes = dict[Layer, Pair | str]


def layers(suite: Suite, networks: Sequence[str]) -> list[Layer]:
    all_layers = [Layer(e.network or suite.name, e.problem) for e in suite.entries() if e.problem.op == "conv"]
    known = list(dict.fromkeys(layer.network for layer in all_layers))
    if not known:
        raise UsageError(f"{suite.name}: has no convolution, expected some; the suite conv-peers has four networks")
    for name in networks:
        if name not in known:
            raise UsageError(f"--network {name}: is not a network of {suite.name}; expected one of {', '.join(known)}")

    def place(layer: Layer) -> tuple[int, int, str, int]:
        network, n, layout, direction = layer.group
        return known.index(network), n, layout, DIRECTIONS.index(direction)

    return sorted((layer for layer in all_layers if layer.network in (networks or known)), key=place)


def pairs(wanted: Sequence[Layer], rows: Sequence[Result], store: Store, ours: set[str]) -> dict[Setting, Outcomes]:
    """Return the layers' pairs in each setting in which a run timed oneDNN. ours: ids of our kernels.

    Raises UsageError if the run has no time of oneDNN.
    """
    all_contests = contests(rows, store)
    settings = dict.fromkeys(c.setting for c in all_contests if c.of(ONEDNN))
    if not settings:
        reason = next((f"{r.status}: {r.reason}" for r in rows if r.kernel == ONEDNN), "it has no row")
        raise UsageError(
            f"run {rows[0].run_id}: {ONEDNN} has no time ({reason}), expected one on some layer; "
            "pip install 'kernelmark[torch]', and run the suite again"
        )
    at = {(c.problem, c.setting): c for c in all_contests}
    failed = {(r.problem, r.mode, r.threads, r.isa): r for r in rows if r.kernel == ONEDNN and not is_timed(r)}

    def pair(layer: Layer, setting: Setting) -> Pair | str:
        contest = at.get((layer.problem.id, setting))
        peer = contest.of(ONEDNN) if contest else None
        best = next((r for r in contest.ranked if r.kernel in ours), None) if contest else None
        if contest and best and peer:
            return Pair(best, peer, contest.faster(best, peer))
        without = failed.get((layer.problem.id, setting.mode, setting.threads, setting.isa))
        if without:
            return f"{ONEDNN} {without.status}: {without.reason}"
        return "none of our kernels has a time" if peer else f"{ONEDNN} has no row" if best else "no row has a time"

    return {setting: {layer: pair(layer, setting) for layer in wanted} for setting in settings}


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio:
    """Return the geometric mean of ratios, with the interval that the head of this file describes."""

    def mean(ends: Iterable[float | None]) -> float | None:
        known = [end for end in ends if end is not None and 0 < end < inf]
        return statistics.geometric_mean(known) if len(known) == len(ratios) else None

    median = statistics.geometric_mean(ratio.median for ratio in ratios)
    low, high = mean(ratio.low for ratio in ratios), mean(ratio.high for ratio in ratios)
    return Ratio(median, low, high, all(r.in_turn for r in ratios), any(r.elsewhere for r in ratios))


def summary(outcomes: Outcomes) -> Iterator[tuple[str, ...]]:
    for group in dict.fromkeys(layer.group for layer in outcomes):
        members = {layer: pair for layer, pair in outcomes.items() if layer.group == group}
        known = {layer: pair for layer, pair in members.items() if isinstance(pair, Pair)}
        count = str(len(members)) if len(known) == len(members) else f"{len(known)} of {len(members)}"
        cells: tuple[str, ...] = ("", "", "")
        if known:
            worst = min(known, key=lambda layer: known[layer].ratio.median)
            mean = geometric_mean([pair.ratio for pair in known.values()])
            cells = (mean.words, worst.name, known[worst].shown)
        yield *map(str, group), count, *cells


def by_layer(outcomes: Outcomes) -> Iterator[tuple[str | int, ...]]:
    for layer, pair in outcomes.items():
        if isinstance(pair, Pair):
            numbers = (pair.ratio.median, pair.ratio.low, pair.ratio.high, pair.peer.gflop_per_s)
            noisy = "yes" if any(map(is_noisy, (pair.ours, pair.peer))) else "no"
            yield *layer.group, layer.name, fmt.short(pair.ours.kernel), *map(fmt.digits, numbers), noisy


def without_ratio(outcomes: Outcomes) -> Iterator[str]:
    failed = [(layer, reason) for layer, reason in outcomes.items() if isinstance(reason, str)]
    for (group, reason), those in grouped(failed, lambda pair: (pair[0].group, pair[1])).items():
        network, n, layout, direction = group
        names = ", ".join(layer.name for layer, _ in those)
        yield f"- {network}, n = {n}, {layout}, {direction}: {names}: {in_markdown(reason)}"


def without_time(rows: Iterable[Result]) -> Iterator[str]:
    """Yield a line for each kernel, status and reason of rows without a time; all refusals of a kernel share a line."""
    reasons: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for r in rows:
        if not is_timed(r):
            reasons[r.kernel, r.status, "" if r.status == Status.UNSUPPORTED else r.reason][r.problem] = r.reason
    for (kernel, status, _), problems in sorted(reasons.items()):
        first, reason = next(iter(problems.items()))
        many = f"{fmt.count(len(problems), 'problem')}, the first `{first}`"
        yield f"- `{kernel}`, {status} on {many}: {in_markdown(reason)}"


def page(suite: Suite, networks: Sequence[str], store: Store, run_id: str, file: Path | None = None) -> Iterator[str]:
    """Yield the paragraphs and the table of a run, and write its layers to `file`, if given. Raises UsageError."""
    wanted = layers(suite, networks)
    ours = {k.id for k in discover().kernels.values() if k.is_ours} - {ONEDNN}
    problems = {layer.problem.id for layer in wanted}
    rows = [r for r, _ in store.results(run_id) if r.problem in problems]
    if not rows:
        raise UsageError(f"run {run_id}: has no row of these layers; `kernelmark run {suite.name}` measures them")
    for setting, outcomes in pairs(wanted, rows, store, ours).items():
        yield f"Run `{run_id}`, {in_markdown(setting.title)}, processes: {rows[0].processes}."
        if count := sum(isinstance(pair, str) for pair in outcomes.values()):
            yield f"Partial: {count} of {len(outcomes)} layers have no ratio; they are listed below with the reasons."
        yield github_table(SUMMARY, summary(outcomes))
        if file:
            with file.open("w", encoding="utf-8", newline="") as opened:
                csv.writer(opened, lineterminator="\n").writerows([LAYERS, *by_layer(outcomes)])
        yield FLATTERS
        shown = [row for pair in outcomes.values() if isinstance(pair, Pair) for row in (pair.ours, pair.peer)]
        yield in_markdown(noise_of(shown).sentence)
        if lines := "\n".join(without_ratio(outcomes)):
            yield f"Layers without a ratio:\n\n{lines}"
    if others := sorted({r.kernel for r in rows} - ours - {ONEDNN}):
        yield f"Left out, since they do not come with kernelmark: {', '.join(map(in_markdown, others))}."
    if lines := "\n".join(without_time(rows)):
        yield f"Rows without a time:\n\n{lines}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="conv_peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--db", type=Path, help="store that holds the run; kernelmark's own if left out")
    parser.add_argument("--run", help="id or name of the run; the latest with times of the suite if left out")
    parser.add_argument("--network", action="append", default=[], help="a network of the suite, instead of all")
    parser.add_argument("--suite", default="conv-peers", help="a suite of convolutions, as `kernelmark run` takes it")
    parser.add_argument("--layers", type=Path, metavar="FILE.csv", help="write a row for each layer")
    options = parser.parse_args(words)
    try:
        suite = find_suite(options.suite, discover())
        with Store(options.db or default_store(), create=False) as store:
            run_id = find_run(suite, store, options.run)
            parts = list(filter(None, page(suite, options.network, store, run_id, options.layers)))
    except UsageError as error:
        print(f"conv_peers: {error}", file=sys.stderr)
        return 2
    print("\n\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
