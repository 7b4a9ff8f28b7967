"""Stores become one: the shards of a plan one run, whatever their order; other runs as they are.

A file is merged whole or not at all, and what was merged before is found again, so that a merge may be repeated.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kernelmark.bench.measure.ceiling import Ceiling, Need
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.record.merge_copy import Copying
from kernelmark.bench.record.merge_shards import Campaign, campaigns, is_part
from kernelmark.bench.record.records import RunFacts
from kernelmark.bench.record.store import Store


class Place(NamedTuple):
    """Where a shard was measured: hosts and devices of its rows, and the best of each ceiling that holds there."""

    hosts: list[str]
    devices: list[str]
    rows: int
    ceilings: dict[Need, Ceiling]


class Source(NamedTuple):
    """A file that is merged, the runs that it holds, and where its shards were measured, by their ids."""

    path: Path
    runs: list[RunFacts]
    places: dict[str, Place]


class Merged(NamedTuple):
    """What a merge has come to. copied: runs that are no shards, by their ids. rows: that were not there before.

    places: where the shards of these files were measured, by the ids of their runs.
    """

    campaigns: list[Campaign]
    copied: list[str]
    rows: int
    places: dict[str, Place]


def merge_files(db: Path, paths: Sequence[Path]) -> Merged:
    """Merge stores into the store `db`, which is made if it is not there. Raises UsageError for what does not fit."""
    sources = [_source(path, db) for path in {path.resolve(): path for path in paths}.values()]
    with closing(Store(db)) as store:
        store.require_sound()
        known = store.runs()
        found = campaigns([(source.path, run) for source in sources for run in source.runs], db, known)
    with closing(Copying(db)) as target:
        rows, copied = 0, dict[str, None]()
        for source in sources:
            whole = [run for run in source.runs if not is_part(run)]
            with target.attached(source.path):
                rows += target.copy_whole(whole, source.path)
            copied |= {run["run_id"]: None for run in whole}
        for campaign in found:
            first = target.room(campaign.run_id)
            for count, (path, run_id, _) in enumerate(campaign.new, 1):
                with target.attached(path):
                    rows += target.join(campaign.until(count), campaign.finished_at(count), run_id, path, first)
    places = {run_id: place for source in sources for run_id, place in source.places.items()}
    return Merged(found, list(copied), rows, places)


def _source(path: Path, db: Path) -> Source:
    """Read the runs of a file. Raises UsageError for one that is no store, is empty, damaged or newer."""
    require_file(path)
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; expected a store that `kernelmark run --shard` has written")
    if path.resolve() == db.resolve():
        raise UsageError(f"{path}: is the store that is merged into; --db names another")
    if path.stat().st_size == 0:
        raise UsageError(f"{path}: is empty, expected a store that `kernelmark run --shard` has written")
    with closing(Store(path, create=False)) as store:
        store.require_sound()
        runs = store.runs()
        places = {run["run_id"]: _place(store, run["run_id"]) for run in runs if is_part(run)}
    if not runs:
        raise UsageError(f"{path}: holds no run; expected a store that `kernelmark run --shard` has written")
    return Source(path, runs, places)


def _place(store: Store, run_id: str) -> Place:
    found = store.machines(run_id)
    best: dict[Need, Ceiling] = {}
    for ceiling, doubt in store.ceilings(run_id):
        if not doubt and ceiling.rate > (best[ceiling.need].rate if ceiling.need in best else 0):
            best[ceiling.need] = ceiling
    hosts, devices = (
        list(dict.fromkeys(filter(None, names))) for names in ([m.host for m in found], [m.device for m in found])
    )
    return Place(hosts, devices, sum(m.rows for m in found), best)
