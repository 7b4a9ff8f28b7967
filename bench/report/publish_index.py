"""`reports/README.md`: the answer to the founding question on each machine, and a table for choosing hardware."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from tabulate import tabulate

from kernelmark.bench.report.export import writing
from kernelmark.bench.report.format import digits, time
from kernelmark.bench.report.founding import QUESTION
from kernelmark.bench.report.noise import MARK
from kernelmark.bench.report.publish_summary import Network, Summary

HOUR_S = 3600
EMPTY = """No machine has been published yet. `make publish` measures this one within 45 minutes on two cores, and
`make gpu` an NVIDIA GPU within nine."""


class Facts(msgspec.Struct):
    """What the index reads of `environment.json`."""

    report: Summary | None = None


class IndexEntry(NamedTuple):
    """A report's folder and its summary."""

    folder: str
    summary: Summary

    @property
    def link(self) -> str:
        return f"[{self.summary.title}]({self.folder}/README.md)"


def write_index(reports: Path) -> Path:
    """Write the index over all reports in a folder, the latest first, and return its path. Raises UsageError."""
    index = reports / "README.md"
    with writing(index):
        reports.mkdir(parents=True, exist_ok=True)
        index.write_text(_text(list(entries(reports))), encoding="utf-8")
    return index


def entries(reports: Path) -> Iterator[IndexEntry]:
    """Yield the reports of a folder that have a summary, the latest first."""
    found = []
    for path in sorted(reports.glob("*/environment.json")):
        try:
            facts = msgspec.json.decode(path.read_bytes(), type=Facts)
        except msgspec.DecodeError:
            continue  # of another program, or of a version whose summary was another
        if facts.report:
            found.append(IndexEntry(path.parent.name, facts.report))
    yield from sorted(found, key=lambda entry: entry.summary.date, reverse=True)


def _text(found: Sequence[IndexEntry]) -> str:
    parts = ["# Published reports"]
    if not found:
        return "\n\n".join([*parts, EMPTY]) + "\n"
    founding = [(e.link, e.summary.date, _answer(e.summary), e.summary.noise or "clean") for e in found]
    parts += [f"**{QUESTION}**", _table(("machine", "date", "answer", "noise"), founding)]
    rows = [row for e in found for row in _hardware(e)]
    if rows:
        heads = ("machine", "network", "pass", "seconds a batch", "batches per unit of money", "batches per kJ")
        parts += [
            "## Choosing hardware",
            "The fastest kernel of each layer, summed over the network.",
            _table(heads, rows),
        ]
        prices = {f"- {e.summary.title}: {e.summary.price.words}" for e in found if e.summary.price}
        if prices:
            parts += ["Prices, which are declared and not measured:", "\n".join(sorted(prices))]
        parts.append(
            "Energy is that of the device's own counter, where it has one; a dash: unknown. "
            f"{MARK}: a layer was measured while the machine was disturbed."
        )
    return "\n\n".join(parts) + "\n"


def _answer(summary: Summary) -> str:
    return summary.answer if summary.founding else "The founding product was not measured."


def _hardware(entry: IndexEntry) -> Iterator[Sequence[str]]:
    for network in entry.summary.networks:
        taken = MARK * network.noisy + time(network.seconds, network.low, network.high)
        device, _, rest = network.setting.partition(", ")
        title = f"{entry.link}: {rest if entry.summary.title.startswith(device) else network.setting}"
        yield title, network.network, network.part, taken, _per_money(network, entry.summary), _per_energy(network)


def _per_money(network: Network, summary: Summary) -> str:
    price = summary.price
    if price is None:
        return "-"
    return f"{digits(HOUR_S / (network.seconds * price.per_hour))} per {price.currency}"


def _per_energy(network: Network) -> str:
    return digits(1000 / network.joules) if network.joules else "-"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return str(tabulate(cells, heads, tablefmt="github", disable_numparse=True))
