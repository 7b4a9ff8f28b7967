"""Print the runs of a store with a line for each, a run as JSON, and the result of merging shards."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.text import as_json, escaped
from kernelmark.bench.record.columns import Result, row
from kernelmark.bench.record.merge import MERGED, Campaign, Merged, ShardPlace, differing
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.records import RowCount, RunFacts
from kernelmark.bench.record.store import resuming
from kernelmark.bench.report.anonymity import nameless, nameless_run
from kernelmark.bench.report.format import count, some
from kernelmark.bench.report.layout import TableColumn, paragraph, table, table_of
from kernelmark.bench.report.places import apart

COLUMNS = (
    TableColumn("run", cell=lambda run: run.run_id),
    TableColumn("name", wraps=8, cell=lambda run: run.name),
    # A run's line must fit the screen, so only two suites are named if there are more than three.
    TableColumn("suites", wraps=12, cell=lambda run: some(run.suites, 3 if len(run.suites) < 4 else 2)),
    TableColumn("begun (UTC)", spare=2, cell=lambda run: run.started_at[:16].replace("T", " ")),
    TableColumn("cases", cell=lambda run: run.cases),
    TableColumn("noisy", spare=1, cell=lambda run: f"{run.noisy} of {run.timed}" if run.noisy else ""),
    TableColumn("machine", spare=3, wraps=16, cell=lambda run: run.machine),
)


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run. cases_planned: None if unknown, as for imported runs; noisy: the number of disturbed timed cases."""

    run_id: str
    name: str
    suites: list[str]
    started_at: str
    finished_at: str | None
    command: str
    git_commit: str
    machine: str
    cases_done: int
    cases_planned: int | None
    timed: int
    noisy: int
    statuses: dict[str, int]

    @property
    def title(self) -> str:
        """Return the run's id and name: `run 20260101-120000-c0ffee00 (baseline)`."""
        return f"run {self.run_id}" + (f" ({escaped(self.name)})" if self.name else "")

    @property
    def cases(self) -> str:
        """Return `26 of 199`, or `26` if the number of planned cases was not recorded."""
        return f"{self.cases_done}" + (f" of {self.cases_planned}" if self.cases_planned is not None else "")

    def partial(self, store: Path) -> str:
        """Return `partial: 26 of 199 cases; ...` with the command to continue, or "" for a complete run."""
        if self.cases_planned is None or self.cases_done >= self.cases_planned:
            return ""
        if self.command == MERGED:
            return f"partial: {self.cases} cases; `kernelmark merge` adds missing and continued shards"
        return f"partial: {self.cases} cases; {resuming(self.run_id, store)} continues it"


def summaries(store: Reader) -> list[RunSummary]:
    """Return the summaries of all runs of a store, the latest first."""
    tallies = store.tallies()
    return [_summary(run, tallies.get(run["run_id"], [])) for run in reversed(store.runs())]


def summary_of(store: Reader, run_id: str) -> RunSummary:
    """Return the summary of the run with this id."""
    (run,) = store.runs(run_id)
    return _summary(run, store.tallies(run_id).get(run_id, []))


def _summary(run: RunFacts, rows: Sequence[RowCount]) -> RunSummary:
    statuses: Counter[str] = Counter()
    for tally in rows:
        statuses[tally.status] += tally.rows
    devices = dict.fromkeys(tally.device_name for tally in rows if tally.device_name)
    return RunSummary(
        run_id=run["run_id"],
        name=run["name"],
        started_at=run["started_at"],
        finished_at=run["finished_at"],
        command=run["command"],
        git_commit=run["git_commit"],
        suites=run["suites"],
        machine=", ".join(devices) or str(run["machine"].get("cpu", "")),
        cases_done=statuses.total(),
        cases_planned=run["planned"],
        timed=sum(tally.timed for tally in rows),
        noisy=sum(tally.timed for tally in rows if was_noisy(tally.disturbed)),
        statuses=dict(statuses),
    )


def runs_table(runs: Iterable[RunSummary]) -> str:
    """Return a table with a line for each run, or `no runs`."""
    return table_of(COLUMNS, runs, titled=True) or "no runs"


def removed_line(runs: Sequence[RunSummary]) -> str:
    """Return the line on removed runs: `removed 2 runs with 40 rows`."""
    rows = sum(run.cases_done for run in runs)
    return f"removed {count(len(runs), 'run')} with {count(rows, 'row')}"


class RunDocument(msgspec.Struct, frozen=True):
    """The document that `--json` prints for a run. results: the columns of each row, then its problem's dimensions."""

    run: RunSummary
    results: list[Result]


def write_run(store: Reader, run_id: str, out: IO[str]) -> None:
    """Write a `RunDocument` of the selected rows of a run."""
    with store.snapshot():
        summary = as_json(summary_of(store, run_id))
        out.write(f'{{"run": {summary},\n"results": [')
        for i, (result, dims) in enumerate(store.results(run_id)):
            out.write(("" if i == 0 else ",") + "\n" + as_json(nameless(store, row(result, dims))))
        out.write("\n]}\n")


#: A function that returns the problems of a plan's shards, by shard number. Raises UsageError if planning fails here.
Problems = Callable[[dict[str, Any], list[int]], Mapping[int, Sequence[str]]]
#: The most problems of a missing shard, and the most missing shards, that are listed.
_NAMED, _LISTED = 3, 20
_SHARDS = (
    TableColumn("shard"),
    TableColumn("run", spare=2),
    TableColumn("host", spare=1),
    TableColumn("device", wraps=24),
    TableColumn("rows", "right"),
    TableColumn("ended (UTC)", spare=3),
)


def merged_lines(store: Reader, merged: Merged, problems: Problems) -> Iterator[str]:
    """Yield the paragraphs that `merge` prints."""
    for campaign in merged.campaigns:
        yield from _campaign(store, campaign, merged.places, problems)
    if merged.copied:
        copied, are = count(len(merged.copied), "run"), "is" if len(merged.copied) == 1 else "are"
        yield paragraph(f"copied {copied} that {are} not part of any shard: {', '.join(merged.copied)}")
    yield paragraph(f"{count(merged.rows, 'new row')} in {store.path}")


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
        yield paragraph(f"differs between shards: {name} is {shown}")
    yield from _missing(campaign, problems)


def _missing(campaign: Campaign, problems: Problems) -> Iterator[str]:
    for part in campaign.unfinished[:_LISTED]:
        which = f"shard {part.index} of {campaign.shard.count} has not ended"
        yield paragraph(f"{which}; `kernelmark run --resume {part.run_id}` continues it, then merge it again")
    missing, total = campaign.missing, campaign.shard.count
    if not missing:
        return
    shown = ", ".join(map(str, missing[:_LISTED])) + (", ..." if missing[_LISTED:] else "")
    several = f"{len(missing)} of {total} shards are missing: {shown}"
    which = several if missing[1:] else f"shard {shown} of {total} is missing"
    yield paragraph(f"{which}; merge missing shards once they are measured")
    try:
        by_shard = problems(campaign.until(len(campaign.new))[0].plan, missing[:_LISTED])
    except UsageError as error:
        yield paragraph(f"the problems of missing shards are not known here: {error}")
        return
    for index, names in by_shard.items():
        yield paragraph(f"{index}/{campaign.shard.count}: {some(names, _NAMED) or 'no problem'}", "  ")


#: The defaults of all options in a plan, as they are stored.
_DEFAULTS = msgspec.json.decode(msgspec.json.encode(Plan(devices=())))


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return `numpy: 2.4.5 -> 2.4.6` for each value that differs; an unset option counts as its default."""
    changed = {}
    for name in dict.fromkeys([*base, *new]):
        old, now = (_told(facts.get(name, _DEFAULTS.get(name))) for facts in (base, new))
        if old != now:
            changed[name] = f"{name}: {_told(base.get(name))} -> {_told(new.get(name))}"
    return [line for name, line in changed.items() if name != "suite_digests" or "suites" not in changed]


def _told(value: Any) -> str:
    """Return `a, b` for a list, and `none` for a missing value."""
    if value in (None, []):
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value) or '""'


def settings_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that may differ between runs on one machine: commit, plan, versions, variables.

    The parts of a merged run are left out, since their ids and times always differ.
    """
    run = nameless_run(run)
    plan = {name: value for name, value in run["plan"].items() if name != "shards"}
    environment = run["environment"]
    nested = {name: value for part in environment.values() if isinstance(part, dict) for name, value in part.items()}
    flat = {name: value for name, value in environment.items() if not isinstance(value, dict)}
    return {"git_commit": run["git_commit"], **plan, **flat, **nested}
