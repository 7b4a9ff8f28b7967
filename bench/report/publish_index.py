"""Write `reports/README.md`: whether GEMM is slow with op_T on each machine, and a table for choosing hardware."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.records import Layer
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import grouped
from kernelmark.bench.report.export import writing
from kernelmark.bench.report.findings import verdict
from kernelmark.bench.report.format import digits, time
from kernelmark.bench.report.founding import QUESTION, answers
from kernelmark.bench.report.layout import github_table
from kernelmark.bench.report.networks import PASSES, chosen, times_of, total
from kernelmark.bench.report.noise import MARK, is_noisy, noise_of
from kernelmark.bench.report.run_data import RunData

HOUR_S = 3600
EMPTY = """No machine has been published yet. `make publish` measures this one within 45 minutes on two cores, and
`make gpu` an NVIDIA GPU within nine."""


class Price(msgspec.Struct, frozen=True):
    """The price of an hour of a device, and its source. The user declares it; it is not measured."""

    per_hour: float
    currency: str
    words: str


class Network(msgspec.Struct, frozen=True):
    """A network's batch with the fastest kernel of each layer: its seconds, their interval, and its joules.

    noisy: whether any layer's row is noisy.
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
    """A report as a line of the index. founding: whether `answer` is about GEMM with op_T."""

    title: str
    date: str
    answer: str
    founding: bool
    noise: str
    price: Price | None = None
    networks: tuple[Network, ...] = ()


class Facts(msgspec.Struct):
    """The fields of `environment.json` that the index reads."""

    report: Summary | None = None


def summary(store: Store, title: str, date: str, price: Price | None, data: RunData) -> Summary:
    """Return the summary of a report, from its main run."""
    passes = tuple(networks(store.layers(data.run_id), list(store.layer_results(data.run_id))))
    return Summary(title, date, verdict(data), bool(answers(data)), noise_of(data.rows).sentence, price, passes)


def networks(layers: Sequence[Layer], rows: Sequence[Result]) -> Iterator[Network]:
    """Yield each pass of each network, in each setting in which all layers of the pass have a time."""
    for network, members in grouped(layers, lambda layer: layer.network).items():
        parts = {layer.part for layer in members}
        for setting, times in times_of(members, rows).items():
            for title, passes in PASSES.items():
                fastest = chosen([member for member in members if member.part in passes], times)
                if parts.issuperset(passes) and (seconds := total(fastest)):
                    noisy = any(is_noisy(r) for _, r in fastest if r)
                    yield Network(network, title, setting.title, *seconds[:3], _joules(fastest), noisy)


def _joules(layers: Sequence[tuple[int, Result | None]]) -> float | None:
    """Return the energy of a batch if it was measured for every layer, or None; declared watts are not used."""
    energies = [count * r.energy_j for count, r in layers if r and r.energy_j]
    return sum(energies) if len(energies) == len(layers) else None


def write_index(reports: Path) -> Path:
    """Write the index of all reports in a folder, the latest first, and return its path. Raises UsageError."""
    index = reports / "README.md"
    with writing(index):
        reports.mkdir(parents=True, exist_ok=True)
        index.write_text(_text(_linked(reports)), encoding="utf-8")
    return index


def _linked(reports: Path) -> list[tuple[str, Summary]]:
    """Return the link and the summary of each report in the folder that has a summary, the latest first."""
    linked = []
    for path in sorted(reports.glob("*/environment.json")):
        with suppress(msgspec.DecodeError):  # written by another program, or by a version with another summary
            if report := msgspec.json.decode(path.read_bytes(), type=Facts).report:
                linked.append((f"[{report.title}]({path.parent.name}/README.md)", report))
    return sorted(linked, key=lambda pair: pair[1].date, reverse=True)


def _text(linked: Sequence[tuple[str, Summary]]) -> str:
    parts = ["# Published reports"]
    if not linked:
        return "\n\n".join([*parts, EMPTY]) + "\n"
    founding = [
        (link, s.date, s.answer if s.founding else "The founding product was not measured.", s.noise or "clean")
        for link, s in linked
    ]
    parts += [f"**{QUESTION}**", github_table(("machine", "date", "answer", "noise"), founding)]
    if rows := [row for link, s in linked for row in _hardware(link, s)]:
        heads = ("machine", "network", "pass", "seconds a batch", "batches per unit of money", "batches per kJ")
        parts += ["## Choosing hardware", "The fastest kernel of each layer, summed over the network."]
        parts.append(github_table(heads, rows))
        prices = {f"- {s.title}: {s.price.words}" for _, s in linked if s.price}
        if prices:
            parts += ["Prices, which are declared and not measured:", "\n".join(sorted(prices))]
        parts.append(
            "Energy is read from the device's counter, if it has one; a dash: unknown. "
            f"{MARK}: a layer was measured while the machine was disturbed."
        )
    return "\n\n".join(parts) + "\n"


def _hardware(link: str, report: Summary) -> Iterator[Sequence[str]]:
    price = report.price
    for network in report.networks:
        taken = MARK * network.noisy + time(network.seconds, network.low, network.high)
        device, _, rest = network.setting.partition(", ")
        title = f"{link}: {rest if report.title.startswith(device) else network.setting}"
        per_money = f"{digits(HOUR_S / (network.seconds * price.per_hour))} per {price.currency}" if price else "-"
        per_kj = digits(1000 / network.joules) if network.joules else "-"
        yield title, network.network, network.part, taken, per_money, per_kj
