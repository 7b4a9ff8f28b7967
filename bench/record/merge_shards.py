"""Which shards belong together, and what the run that they become records of them."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.shards import Shard
from kernelmark.bench.record.records import RunFacts
from kernelmark.bench.record.store import Run

#: The command of a run that was merged. What its shards were asked for stands in its plan, under `shards`.
MERGED = "kernelmark merge"
_ELSEWHERE = "merge it into another file (--db)"
#: Of a plan, what shards need not have alike: paths of one host, and which part each is.
_OWN = ("shard", "shards", "suites", "plugins", "suite_digests")


class Part(msgspec.Struct, frozen=True):
    """A shard as its run recorded it: its number, and where, when and how it was measured."""

    index: int
    run_id: str
    started_at: str
    finished_at: str | None
    command: str
    machine: dict[str, Any]
    environment: dict[str, Any]


class Campaign(NamedTuple):
    """The shards of one plan. known: those merged before; new: those of each file, by the id that its rows have."""

    run_id: str
    first: RunFacts
    known: dict[int, Part]
    new: list[tuple[Path, str, list[Part]]]

    @property
    def shard(self) -> Shard:
        """Return how many parts and cases there are."""
        return shard_of(self.first)

    @property
    def parts(self) -> dict[int, Part]:
        """Return all that are merged in the end, in the order of their numbers."""
        found = dict(self.known)
        for _, _, parts in self.new:
            found |= {part.index: _later(found.get(part.index), part) or part for part in parts}
        return dict(sorted(found.items()))

    @property
    def missing(self) -> list[int]:
        """Return the numbers of the shards that no file had."""
        return [index for index in range(1, self.shard.count + 1) if index not in self.parts]

    def until(self, count: int) -> Run:
        """Return the run that the parts of the first `count` files become."""
        parts = list(self._replace(new=self.new[:count]).parts.values())
        plan = {**self.first["plan"], "shard": {"index": 0, "count": self.shard.count, "cases": self.shard.cases}}
        return Run(
            run_id=self.run_id,
            machine=_common([part.machine for part in parts]),
            started_at=min(part.started_at for part in parts),
            suites=tuple(self.first["suites"]),
            command=MERGED,
            environment=_common([part.environment for part in parts]),
            git_commit=self.first["git_commit"],
            plan={**plan, "shards": msgspec.to_builtins(parts)},
            name=self.first["name"],
            planned=self.shard.cases,
        )

    def finished_at(self, count: int) -> str | None:
        """Return when the last part ended, if all are there and have."""
        parts = self._replace(new=self.new[:count]).parts.values()
        ends = [part.finished_at for part in parts if part.finished_at]
        return max(ends) if len(ends) == self.shard.count else None


def is_part(run: RunFacts) -> bool:
    """Return whether a run is a shard, or was merged of some."""
    return bool(run["plan"].get("shard"))


def shard_of(run: RunFacts) -> Shard:
    """Return which part a run is. Raises UsageError for a damaged plan."""
    try:
        return msgspec.convert(run["plan"]["shard"], Shard)
    except msgspec.ValidationError as error:
        raise UsageError(f"run {run['run_id']}: its plan is damaged: {error}; start a new run") from None


def parts_of(run: RunFacts) -> list[Part]:
    """Return the shard that a run is, or those that it was merged of. Raises UsageError for a damaged plan."""
    if "shards" not in run["plan"]:
        own = {name: run[name] for name in Part.__struct_fields__ if name != "index"}  # type: ignore[literal-required]
        return [Part(shard_of(run).index, **own)]
    try:
        return msgspec.convert(run["plan"]["shards"], list[Part])
    except msgspec.ValidationError as error:
        raise UsageError(f"run {run['run_id']}: its shards are damaged: {error}; start a new run") from None


def campaigns(runs: Sequence[tuple[Path, RunFacts]], db: Path, there: Iterable[RunFacts]) -> list[Campaign]:
    """Return the shards of each plan, with those that the store `db` has. Raises UsageError where they do not fit."""
    found: dict[tuple[str, ...], list[tuple[Path, RunFacts]]] = {}
    for path, run in runs:
        if is_part(run):
            found.setdefault(_key(run), []).append((path, run))
    before = {_key(run): run for run in there if "shards" in run["plan"]}
    return [_campaign(own, db, before.get(key)) for key, own in found.items()]


def _campaign(runs: Sequence[tuple[Path, RunFacts]], db: Path, before: RunFacts | None) -> Campaign:
    """Return the campaign of runs with one key, in the order of their numbers, not of the files."""
    ordered = sorted(runs, key=lambda one: (shard_of(one[1]).index, one[1]["run_id"], str(one[0])))
    holder, first = (db, before) if before else ordered[0]
    seen = {part.index: (db, part) for part in (parts_of(before) if before else [])}
    known = {index: part for index, (_, part) in seen.items()}
    for path, run in ordered:
        for what, found, expected in _differences(agreed(run), agreed(first)):
            raise UsageError(f"{path}: {what} is {found}, that of {holder} is {expected}; {_ELSEWHERE}")
        for part in parts_of(run):
            where, other = seen.setdefault(part.index, (path, part))
            if _later(other, part) is None:
                label = f"shard {part.index}/{shard_of(run).count}"
                which = f"is run {part.run_id}, that of {where} is run {other.run_id}"
                which = which if part.run_id != other.run_id else f"(run {part.run_id}) began otherwise in {where}"
                raise UsageError(f"{path}: {label} {which}; {_ELSEWHERE}")
    new = [(path, run["run_id"], parts_of(run)) for path, run in ordered]
    plans = [run["plan"] for run in [first, *(run for _, run in ordered)]]
    paths = {name: min(plan.get(name, []) for plan in plans) for name in ("suites", "plugins")}
    return Campaign(_run_id(first), {**first, "plan": {**first["plan"], **paths}}, known, new)


def _later(one: Part | None, other: Part) -> Part | None:
    """Return what is known of a shard from two copies of its run; None where they are not of one run."""
    if one is None:
        return other
    last = max(filter(None, (one.finished_at, other.finished_at)), default=None)
    one, other = (msgspec.structs.replace(part, finished_at=last) for part in (one, other))
    return one if one == other else None


def agreed(run: RunFacts) -> dict[str, Any]:
    """Return what all shards have alike."""
    plan, shard = run["plan"], shard_of(run)
    return {
        "the digest of the suite": plan.get("suite_digests"),
        "the commit": run["git_commit"],
        "the version of kernelmark": run["environment"].get("kernelmark"),
        "the number of shards": shard.count,
        **{f"plan.{name}": value for name, value in sorted(plan.items()) if name not in _OWN},
        "plan.plugins": [Path(plugin).name for plugin in plan.get("plugins", [])],
        "the number of cases": shard.cases,
    }


def differing(parts: Sequence[Part]) -> Iterator[tuple[str, list[Any]]]:
    """Yield what the shards' machines and environments have not alike, with the value of each shard."""
    for name in ("machine", "environment"):
        yield from _unlike(name, [getattr(part, name) for part in parts])


def _unlike(name: str, values: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    if all(isinstance(value, dict) for value in values):
        for key in sorted({key for value in values for key in value}):
            yield from _unlike(f"{name}.{key}", [value.get(key) for value in values])
    elif any(value != values[0] for value in values):
        yield name, list(values)


def _differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            yield name, _brief(found.get(name)), _brief(expected.get(name))


def _brief(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _key(run: RunFacts) -> tuple[str, ...]:
    """Return what makes shards those of one plan: their suites and the user's name for the run."""
    return (run["name"], *run["suites"])


def _run_id(run: RunFacts) -> str:
    """Return the id of what all shards become, which begins like no name."""
    facts = json.dumps([_key(run), agreed(run)], sort_keys=True)
    return f"{shard_of(run).count}-shards-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def _common(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts that all have alike."""
    return {name: value for name, value in facts[0].items() if all(own.get(name) == value for own in facts)}
