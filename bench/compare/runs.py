"""`kernelmark compare`: whether two runs can be compared, what differs between them, and the outcome as text."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import msgspec

from kernelmark.bench.compare.cases import REMEDY, CasePair, Comparison, Side
from kernelmark.bench.compare.view import ComparedCase, CompareDocument, Findings, as_row, csv_writer, gather, render
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.export import check_writable, write_text
from kernelmark.bench.report.layout import paragraph
from kernelmark.bench.report.runs import summary_of

Asked = tuple[Store, str]


def compare_runs(
    base: Asked,
    new: Asked,
    margin: float,
    fail_slower: float | None,
    anyway: bool,
    csv_path: Path | None,
    json_to: IO[str] | None = None,
) -> tuple[str, bool]:
    """Return the comparison as text, and whether a case fails. Raises UsageError for runs that cannot be compared.

    base, new: a store and what its run is named by. margin, fail_slower: fractions.
    """
    if csv_path is not None:
        check_writable(csv_path)
    with ExitStack() as stack:
        for store in {base[0], new[0]}:
            stack.enter_context(store.snapshot())
        old, now = (store.find_run(run_id) for store, run_id in (base, new))
        machines = _machines(old, now, anyway)
        _check_tiles(old, now, anyway)
        comparison = Comparison(Side(base[0], old["run_id"]), Side(new[0], now["run_id"]), margin)
        _check_cases(comparison, anyway)
        if fail_slower is not None:
            _check_decidable(comparison)
        machines += [f"device: {a} -> {b}" for a, b in sorted(comparison.devices)]
        cases: list[ComparedCase] = []
        keep = (lambda case: None) if json_to is None else (lambda case: cases.append(as_row(case)))
        found = _gathered(comparison, machines, csv_path, keep)
        if json_to is not None:
            one, other = (summary_of(side.store, side.run_id) for side in (comparison.base, comparison.new))
            differs, alone = _differences(_settings(old), _settings(now)), (comparison.base_only, comparison.new_only)
            document = CompareDocument(one, other, machines, differs, margin, dict(found.verdicts), *alone, cases)
            json_to.write(msgspec.json.encode(document).decode() + "\n")
        text = f"{_header(old, now, machines, margin)}\n\n{render(comparison, found)}"
        return text, fail_slower is not None and found.fails(fail_slower)


def _gathered(
    comparison: Comparison, machines: Sequence[str], csv_path: Path | None, keep: Callable[[CasePair], object]
) -> Findings:
    if csv_path is None:
        return gather(comparison, keep)
    found: list[Findings] = []

    def write(out: IO[str]) -> None:
        row = csv_writer(comparison, machines, out)
        found.append(gather(comparison, lambda case: (row(case), keep(case))))

    write_text(csv_path, write)
    return found[0]


def _machines(base: Mapping[str, Any], new: Mapping[str, Any], anyway: bool) -> list[str]:
    """Return what differs between the machines of the two runs."""
    if base["run_id"] == new["run_id"]:
        raise UsageError(f"BASE and NEW are both run {base['run_id']}; expected two runs")
    found = _differences(base["machine"], new["machine"])
    if found and not anyway:
        which = f"runs {base['run_id']} and {new['run_id']}"
        raise UsageError(f"{which} are of different machines: {'; '.join(found)}; --anyway compares them")
    return found


def _check_tiles(base: Mapping[str, Any], new: Mapping[str, Any], anyway: bool) -> None:
    """Raise UsageError for runs whose kernels had different tiles: their times are not of the same code."""
    tiles = [{_tile(tile) for tile in run["plan"].get("tiles", ())} for run in (base, new)]
    if tiles[0] != tiles[1] and not anyway:
        only = min(tiles[0] ^ tiles[1])
        which = f"runs {base['run_id']} and {new['run_id']}"
        raise UsageError(f"{which} differ in tuned tiles: {only} is of one alone; --anyway compares them")


def _tile(tile: Mapping[str, Any]) -> str:
    return f"{tile['kernel']}@{tile['tile']} on {tile['problem']}, {tile['threads']} threads"


def _check_cases(comparison: Comparison, anyway: bool) -> None:
    if not len(comparison.p_holm):
        counts = f"{comparison.base_only} in BASE, {comparison.new_only} in NEW"
        raise UsageError(f"the runs have no case in common: {counts}; a case is kernel, problem, mode, threads and isa")
    if comparison.devices and not anyway:
        old, now = min(comparison.devices)
        raise UsageError(f"cases ran on different devices: {old} in BASE, {now} in NEW; --anyway compares them")


def _check_decidable(comparison: Comparison) -> None:
    """Raise UsageError for a comparison that cannot find a slower case: it must not pass for one that found none."""
    if not comparison.timed:
        raise UsageError("--fail-slower: no case has a time in both runs, so none can be found slower")
    if comparison.alone:
        which = f"{comparison.alone} of {comparison.timed} cases"
        raise UsageError(f"--fail-slower: {which} have fewer than two processes in BASE or NEW; {REMEDY}")


def _header(base: Mapping[str, Any], new: Mapping[str, Any], machines: Sequence[str], margin: float) -> str:
    """Return which runs these are, what differs, and what the verdicts mean."""
    lines = [f"{name} {run['run_id']}, {run['started_at']}" for name, run in (("BASE", base), ("NEW ", new))]
    lines += [f"DIFFERENT MACHINES: {line}" for line in machines]
    lines += [f"differs: {line}" for line in _differences(_settings(base), _settings(new))]
    lines.append(
        "NEW/BASE: geometric means of the processes' medians, 95 % interval of each case by itself (Welch); "
        "slower, faster: with at most 5 % error over all cases (Holm); "
        f"same: the interval lies within {100 * margin:g} % of 1"
    )
    return "\n".join(map(paragraph, lines))


def _differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return `numpy: 2.4.5 -> 2.4.6` for each value that is not the same in both."""
    pairs = ((name, base.get(name, "none"), new.get(name, "none")) for name in dict.fromkeys([*base, *new]))
    return [f"{name}: {old} -> {now}" for name, old, now in pairs if old != now]


def _settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may vary from run to run on one machine: commit, plan, versions, variables."""
    environment = run["environment"]
    nested = {name: value for part in environment.values() if isinstance(part, dict) for name, value in part.items()}
    flat = {name: value for name, value in environment.items() if not isinstance(value, dict)}
    return {"git_commit": run["git_commit"], **run["plan"], **flat, **nested}
