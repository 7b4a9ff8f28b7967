"""The history of a kernel on a problem: each version that was tried, its rates, and what changed from one to the next.

Only versions that shared a job were sampled in turn; any other two have the quotient of their intervals, marked so.
"""

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from kernelmark.bench.plan.text import escaped
from kernelmark.bench.record.versions import KernelVersion, StoredVersion, VersionRatio
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.format import count, seconds, short
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
#: What the tile of a kernel that is compared with its own default is set against.
DEFAULT = "the default"


class Rate(msgspec.Struct, forbid_unknown_fields=True):
    """How many times faster a version is than another, with the interval; in_turn: whether both shared a job."""

    ratio: float
    low: float | None
    high: float | None
    in_turn: bool


class Against(msgspec.Struct, forbid_unknown_fields=True):
    """What a version was sampled in turn with. kernel: an id, or ""; version: an earlier one, by its number."""

    kernel: str
    version: int | None
    rate: Rate


class HistoryVersion(msgspec.Struct, forbid_unknown_fields=True):
    """A version. digest: of its sources. right: null where it was not judged. diff: to the version before it."""

    number: int
    digest: str
    found: KernelVersion
    against_first: Rate | None
    against: list[Against]
    diff: str


class HistoryDocument(msgspec.Struct, forbid_unknown_fields=True):
    """What `history --json` prints."""

    kernel: str
    problem: str
    versions: list[HistoryVersion]


class Step(NamedTuple):
    """A version of a history, by its number there, after the one before it."""

    number: int
    kept: StoredVersion
    before: StoredVersion | None
    against_first: Ratio | None
    against: list[tuple[VersionRatio, Ratio]]


def steps(history: Sequence[StoredVersion]) -> list[Step]:
    """Return the versions in the order in which they were tried."""
    befores = [None, *history[:-1]]
    return [
        Step(i, kept, before, _against_first(kept, history[0]) if before else None, _against(kept))
        for i, (kept, before) in enumerate(zip(history, befores, strict=False), 1)
    ]


def _against(kept: StoredVersion) -> list[tuple[VersionRatio, Ratio]]:
    return [(one, Ratio(one.ratio, one.low, one.high)) for one in kept.version.compared]


def _against_first(kept: StoredVersion, first: StoredVersion) -> Ratio | None:
    if in_turn := next((ratio for one, ratio in _against(kept) if one.version == first.number), None):
        return in_turn
    own, base = kept.version, first.version
    if own.time_s and base.time_s and _setting(own) == _setting(base):
        return Ratio(base.time_s, base.low, base.high).over(Ratio(own.time_s, own.low, own.high))
    return None


def _setting(version: KernelVersion) -> tuple[str, str, int]:
    return version.device, version.mode, version.threads


def history_page(kernel: str, problem: str, history: Sequence[StoredVersion], diff: bool) -> Iterator[str]:
    """Yield the paragraphs of a history."""
    found = steps(history)
    if not found:
        yield paragraph(
            f"{kernel} on {problem}: no version is kept; `kernelmark watch` and `kernelmark tune` keep them"
        )
        return
    right = sum(bool(step.kept.version.right) for step in found)
    yield paragraph(f"{kernel} on {problem}: {count(len(found), 'version')}, {right} right", rest="")
    yield table(COLUMNS, [_cells(step) for step in found])
    if any(step.against_first and not step.against_first.in_turn for step in found):
        yield paragraph("not in turn: the quotient of two jobs, which the machine's drift is a part of", rest="")
    for step in found[1:] if diff else ():
        yield "\n".join([paragraph(_changed(step), rest=""), *map(escaped, _diff(step))])


def _cells(step: Step) -> tuple[str, ...]:
    own = step.kept.version
    return (
        str(step.number),
        own.saved_at[:16].replace("T", " "),
        own.by,
        step.kept.digest[:8],
        own.verdict,
        own.tile.replace(",", ", "),
        seconds(own.time_s) if own.time_s else "",
        f"{step.against_first}{'' if step.against_first.in_turn else ' (not in turn)'}" if step.against_first else "",
        ", ".join(f"{ratio} {_name(one, own)}" for one, ratio in step.against if one.version is None),
        "" if own.registers is None else str(own.registers),
        "" if own.spill_bytes is None else str(own.spill_bytes),
    )


def _name(one: VersionRatio, own: KernelVersion) -> str:
    return DEFAULT if one.kernel == own.kernel else short(one.kernel)


def _changed(step: Step) -> str:
    assert step.before is not None
    now, before = step.kept.version.tile, step.before.version.tile
    parts = [f"version {step.number} after version {step.number - 1}"]
    parts += [f"tile {before or 'none'}, then {now or 'none'}"] * (now != before)
    parts += ["the sources are the same"] * (step.kept.digest == step.before.digest)
    return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]


def _diff(step: Step) -> Iterator[str]:
    if step.before is None:
        return
    old, new = step.before.sources, step.kept.sources
    for name in sorted({*old, *new}):
        before, now = (texts.get(name, b"").decode(errors="replace").splitlines() for texts in (old, new))
        names = (f"{name} {step.number - 1}", f"{name} {step.number}")
        yield from difflib.unified_diff(before, now, *names, lineterm="")


def history_document(kernel: str, problem: str, history: Sequence[StoredVersion]) -> HistoryDocument:
    """Return a history as plain data."""
    numbers = {kept.number: i for i, kept in enumerate(history, 1)}
    found = [
        HistoryVersion(
            step.number,
            step.kept.digest,
            step.kept.version,
            _rate(step.against_first) if step.against_first else None,
            [Against(one.kernel, numbers.get(one.version or 0), _rate(ratio)) for one, ratio in step.against],
            "\n".join(_diff(step)),
        )
        for step in steps(history)
    ]
    return HistoryDocument(kernel, problem, found)


def _rate(ratio: Ratio) -> Rate:
    return Rate(ratio.median, ratio.low, ratio.high, ratio.in_turn)
