"""What the index of published reports shows of one: its answer, its noise, and seconds a batch of whole networks."""

from collections.abc import Iterator, Sequence

import msgspec

from kernelmark.bench.record.records import Layer
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.findings import verdict
from kernelmark.bench.report.founding import answers
from kernelmark.bench.report.networks import PASSES, by_network, fastest_of, times_of, total
from kernelmark.bench.report.noise import is_noisy, noise_of
from kernelmark.bench.report.publish_readme import Price, Publication
from kernelmark.bench.report.run_data import RunData


class Network(msgspec.Struct, frozen=True):
    """Seconds that a batch of a network takes by the fastest kernel of each layer, its interval, and joules.

    noisy: whether the row of any layer is.
    """

    network: str
    part: str
    setting: str
    seconds: float
    low: float | None = None
    high: float | None = None
    joules: float | None = None
    noisy: bool = False


class Summary(msgspec.Struct, frozen=True):
    """A report as a line of the index; founding: whether the answer is that to the founding question."""

    title: str
    date: str
    answer: str
    founding: bool
    noise: str
    price: Price | None = None
    networks: tuple[Network, ...] = ()


def summary(store: Store, about: Publication, data: RunData) -> Summary:
    """Return the summary of a report, from its main run."""
    layers, rows = store.layers(data.run_id), list(store.layer_results(data.run_id))
    return Summary(
        about.title,
        about.date,
        verdict(data),
        bool(answers(data)),
        noise_of(data.rows).sentence,
        about.price,
        tuple(networks(layers, rows)),
    )


def networks(layers: Sequence[Layer], rows: Sequence[Result]) -> Iterator[Network]:
    """Yield the passes of each network in each setting, where every layer has a time."""
    for network, own in by_network(layers).items():
        parts = {layer.part for layer in own}
        for setting, times in times_of(own, rows).items():
            for title, passes in PASSES.items():
                chosen = [(one.count, fastest_of(times.get(one.problem, {}))) for one in own if one.part in passes]
                if parts.issuperset(passes) and (seconds := total(chosen)):
                    noisy = any(is_noisy(r) for _, r in chosen if r)
                    yield Network(network, title, setting.title, *seconds[:3], _joules(chosen), noisy)


def _joules(layers: Sequence[tuple[int, Result | None]]) -> float | None:
    """Return the energy of a batch where it was measured of every layer; declared watts are no measurement."""
    found = [count * r.energy_j for count, r in layers if r and r.energy_j]
    return sum(found) if len(found) == len(layers) else None
