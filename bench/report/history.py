"""The history of a kernel on a problem: each version that was tried, its speed, and the changes to its sources.

Only versions that shared a job were sampled in turn. The interval of any other ratio is the quotient of two intervals,
and the ratio is marked.
"""

import difflib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from kernelmark.bench.plan.text import escaped
from kernelmark.bench.record.versions import KernelVersion, StoredVersion
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.format import count, factor, seconds, short
from kernelmark.bench.report.layout import TableColumn, paragraph, table

COLUMNS = (
    TableColumn("version", "right"),
    TableColumn("saved (UTC)", spare=3, wraps=10),
    TableColumn("by", spare=4),
    TableColumn("source", spare=5),
    TableColumn("verdict", wraps=12),
    TableColumn("tile", wraps=12),
    TableColumn("time", "right"),
    TableColumn("against the first", wraps=18),
    TableColumn("against others", wraps=18, spare=1),
    TableColumn("registers", "right", spare=2),
    TableColumn("spill", "right"),
)
#: The words for a kernel's default tile, with which its other tiles are compared.
DEFAULT = "the default"


class Rate(msgspec.Struct, forbid_unknown_fields=True):
    """How many times faster a version is than another, with the interval. in_turn: whether both shared a job."""

    ratio: float
    low: float | None
    high: float | None
    in_turn: bool

    def __str__(self) -> str:
        return factor(self.ratio, self.low, self.high)


class Against(msgspec.Struct, forbid_unknown_fields=True):
    """A version's speed over a rival in the same job. The rival is `kernel` or, if that is "", version `version`."""

    kernel: str
    version: int | None
    rate: Rate


class HistoryVersion(msgspec.Struct, forbid_unknown_fields=True):
    """A version of a kernel. digest: a hash of its sources; diff: their changes since the previous version."""

    number: int
    digest: str
    found: KernelVersion
    against_first: Rate | None
    against: list[Against]
    diff: str


class HistoryDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The document that `history --json` prints."""

    kernel: str
    problem: str
    versions: list[HistoryVersion]


def history_document(kernel: str, problem: str, history: Sequence[StoredVersion]) -> HistoryDocument:
    """Return the versions of a kernel on a problem in the order in which they were tried."""
    numbers = {stored.number: i for i, stored in enumerate(history, 1)}
    versions = []
    for i, stored in enumerate(history):
        against = [
            Against(peer.kernel, numbers.get(peer.version or 0), Rate(peer.ratio, peer.low, peer.high, True))
            for peer in stored.version.compared
        ]
        first = _against_first(stored, history[0]) if i else None
        diff = "\n".join(_diff(i, history[i - 1], stored)) if i else ""
        versions.append(HistoryVersion(i + 1, stored.digest, stored.version, first, against, diff))
    return HistoryDocument(kernel, problem, versions)


def _against_first(stored: StoredVersion, first: StoredVersion) -> Rate | None:
    version, base = stored.version, first.version
    if in_turn := next((peer for peer in version.compared if peer.version == first.number), None):
        return Rate(in_turn.ratio, in_turn.low, in_turn.high, True)
    alike = (version.device, version.mode, version.threads) == (base.device, base.mode, base.threads)
    if version.time_s and base.time_s and alike:
        return Rate(*Ratio(base.time_s, base.low, base.high).over(Ratio(version.time_s, version.low, version.high))[:4])
    return None


def _diff(number: int, before: StoredVersion, now: StoredVersion) -> Iterator[str]:
    for name in sorted({*before.sources, *now.sources}):
        old, new = (stored.sources.get(name, b"").decode(errors="replace").splitlines() for stored in (before, now))
        yield from difflib.unified_diff(old, new, f"{name} {number}", f"{name} {number + 1}", lineterm="")


def history_page(document: HistoryDocument, diff: bool) -> Iterator[str]:
    """Yield the paragraphs of a history. diff: whether to show the changes to the sources."""
    subject, versions = f"{document.kernel} on {document.problem}", document.versions
    if not versions:
        yield paragraph(f"{subject}: no version is stored; `kernelmark watch` and `kernelmark tune` store them")
        return
    right = sum(bool(each.found.right) for each in versions)
    yield paragraph(f"{subject}: {count(len(versions), 'version')}, {right} right", rest="")
    yield table(COLUMNS, [_cells(each) for each in versions])
    if any(each.against_first and not each.against_first.in_turn for each in versions):
        yield paragraph("not in turn: the quotient of two medians; drift of the machine may have changed it", rest="")
    for before, now in pairwise(versions) if diff else ():
        lines = now.diff.split("\n") if now.diff else ()
        yield "\n".join([paragraph(_changed(before, now), rest=""), *map(escaped, lines)])


def _cells(each: HistoryVersion) -> tuple[str, ...]:
    version, first = each.found, each.against_first
    others = (peer for peer in each.against if peer.version is None and peer.kernel)
    return (
        str(each.number),
        version.saved_at[:16].replace("T", " "),
        version.by,
        each.digest[:8],
        version.verdict,
        version.tile.replace(",", ", "),
        seconds(version.time_s) if version.time_s else "",
        f"{first}{'' if first.in_turn else ' (not in turn)'}" if first else "",
        ", ".join(f"{peer.rate} {DEFAULT if peer.kernel == version.kernel else short(peer.kernel)}" for peer in others),
        "" if version.registers is None else str(version.registers),
        "" if version.spill_bytes is None else str(version.spill_bytes),
    )


def _changed(before: HistoryVersion, now: HistoryVersion) -> str:
    tiles = [each.found.tile or "none" for each in (before, now)]
    parts = [f"tile {', then '.join(tiles)}"] * (tiles[0] != tiles[1])
    parts += ["the sources are the same"] * (before.digest == now.digest)
    return ": ".join([f"version {now.number} after version {before.number}", *filter(None, ["; ".join(parts)])])
