"""What a merge of shards has come to: where each was measured, whether their machines agree, what is missing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.merge import Campaign, Merged, ShardPlace, differing
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.report.format import count
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.places import apart
from kernelmark.bench.report.runs import summary_of

#: Returns the problems of shards by their numbers, for a plan; raises UsageError where that cannot be planned again.
Problems = Callable[[dict[str, Any], list[int]], Mapping[int, Sequence[str]]]
#: Problems of a missing shard, and missing shards, that are named.
_NAMED, _LISTED = 3, 20
_SHARDS = (
    TableColumn("shard"),
    TableColumn("run", spare=2),
    TableColumn("host", spare=1),
    TableColumn("device", wraps=24),
    TableColumn("rows", "right"),
    TableColumn("ended (UTC)", spare=3),
)


def merged_lines(store: Reader, found: Merged, problems: Problems) -> Iterator[str]:
    """Yield the paragraphs that `merge` prints."""
    for campaign in found.campaigns:
        yield from _campaign(store, campaign, found.places, problems)
    if found.copied:
        copied, are = count(len(found.copied), "run"), "is" if len(found.copied) == 1 else "are"
        yield paragraph(f"{copied} that {are} no shard: {', '.join(found.copied)}")
    yield f"{count(found.rows, 'new row')} in {store.path}"


def _campaign(store: Reader, campaign: Campaign, places: Mapping[str, ShardPlace], problems: Problems) -> Iterator[str]:
    summary, parts = summary_of(store, campaign.run_id), campaign.parts
    present = f"{len(parts)} of {campaign.shard.count} shards, {summary.cases} cases"
    yield f"{summary.title}: {present}\n"
    cells = []
    for part in parts.values():
        place = places.get(part.run_id, ShardPlace([], [], 0, {}))
        ended = part.finished_at[:16].replace("T", " ") if part.finished_at else "not yet"
        rows = str(place.rows) if part.run_id in places else "merged before"
        number = f"{part.index}/{campaign.shard.count}"
        cells.append((number, part.run_id, ", ".join(place.hosts), ", ".join(place.devices), rows, ended))
    yield table(_SHARDS, cells, titled=True) + "\n"
    by_shard = {part.index: places[part.run_id].ceilings for part in parts.values() if part.run_id in places}
    for part_of in apart(by_shard, "shard"):
        yield part_of + "\n"
    for name, values in differing(list(parts.values())):
        shown = ", ".join(f"{value} ({index})" for index, value in zip(parts, values, strict=True))
        yield paragraph(f"not alike on all shards: {name} is {shown}")
    yield from _missing(campaign, problems)


def _missing(campaign: Campaign, problems: Problems) -> Iterator[str]:
    if not campaign.missing:
        return
    shown = ", ".join(map(str, campaign.missing[:_LISTED])) + (", ..." if campaign.missing[_LISTED:] else "")
    which = f"shard {shown} of {campaign.shard.count} is"
    if campaign.missing[1:]:
        which = f"{len(campaign.missing)} of {campaign.shard.count} shards are"
        shown = f": {shown}"
    yield paragraph(f"{which} missing{shown if campaign.missing[1:] else ''}; merge what has been measured since")
    try:
        found = problems(campaign.until(len(campaign.new))[0].plan, campaign.missing[:_LISTED])
    except UsageError as error:
        yield paragraph(f"their problems are not known here: {error}")
        return
    for index, names in found.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield paragraph(f"{index}/{campaign.shard.count}: {', '.join(names[:_NAMED]) or 'no problem'}{more}", "  ")
