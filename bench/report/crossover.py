"""The fastest kernel of each problem of a suite, and where the winner changes, as tables and CSV."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from typing import IO, Any

from tabulate import tabulate

from bench.plan.suites import Suite
from bench.record.result import Result
from bench.report.standings import Change, Ratio, Setting, Standing, changes
from bench.report.tables import seconds, spread

COLUMNS = (
    "suite", "run_id", "problem", "device", "device_name", "threads", "mode", "precision",
    "fastest", "numerics", "time_s_median", "time_s_ci95_low", "time_s_ci95_high",
    "runner_up", "ratio", "ratio_ci95_low", "ratio_ci95_high",
    "fft", "fft_speedup", "fft_speedup_ci95_low", "fft_speedup_ci95_high",
    "along", "from", "previous", "gain", "gain_ci95_low", "gain_ci95_high",
)  # fmt: skip


def render(suite: Suite, found: Sequence[Standing]) -> str:
    """One table a setting, then the changes along the axes that the suite sweeps."""
    if not found:
        return f"{suite.name}: this run has no time for any of its problems"
    settings: dict[Setting, list[Standing]] = defaultdict(list)
    for standing in found:
        settings[standing.setting].append(standing)
    turned = changes(suite, found)
    parts = [_section(setting, rows, turned) for setting, rows in settings.items()]
    measured = len({standing.problem for standing in found})
    total = len({entry.problem for entry in suite.entries()})
    return "\n\n".join([*parts, f"{suite.name}: {measured} of {total} problems have a time"])


def _section(setting: Setting, rows: Sequence[Standing], turned: Sequence[Change]) -> str:
    own = [_sentence(change) for change in turned if change.after.setting == setting]
    return "\n".join([setting.title, _table(rows), *([""] if own else []), *own])


def _table(rows: Sequence[Standing]) -> str:
    headers = ("problem", "fastest", "time", "95 %", "next", "slower by", "FFT", "FFT speedup")
    cells = [_cells(standing) for standing in rows]
    keep = [i for i in range(len(headers)) if any(row[i] for row in cells)]
    table: str = tabulate([[row[i] for i in keep] for row in cells], [headers[i] for i in keep], disable_numparse=True)
    return table


def _cells(s: Standing) -> Sequence[str]:
    return (
        s.problem.id,
        _short(s.fastest),
        seconds(s.fastest.time_s_median),
        spread(s.fastest),
        _short(s.ranked[1]) if s.lead else "",
        _said(s.lead) if s.lead else "",
        _short(s.fft) if s.fft else "",
        str(s.fft_speedup or ""),
    )


def _said(ratio: Ratio) -> str:
    return f"{ratio}{'' if ratio.certain else ' (not told apart)'}"


def _short(result: Result) -> str:
    return result.kernel.partition("/")[2]


def _sentence(change: Change) -> str:
    """`  r 5 to 7, up to ID: cpu.im2col, ahead 1.4x [1.3, 1.5], gives way to pyfftw.tiled, ahead 1.8x [1.7, 1.9]`."""
    here, there = (getattr(s.problem, change.along) for s in (change.before, change.after))
    old, new = (
        f"{_short(s.fastest)}, " + (f"ahead {_said(gain)}" if gain else "where the other has no time")
        for s, gain in ((change.before, change.gain_before), (change.after, change.gain))
    )
    return f"  {change.along} {here} to {there} ({change.after.problem.id}): {old}, gives way to {new}"


def write_csv(suite: Suite, run_id: str, found: Sequence[Standing], out: IO[str]) -> None:
    """A row for each problem and setting; `from` and `previous`: the neighbour at which another still won, and who."""
    turned = {(change.after.problem, change.after.setting): change for change in changes(suite, found)}
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for s in found:
        writer.writerow(_row(suite, run_id, s) | _turn(turned.get((s.problem, s.setting))))


def _row(suite: Suite, run_id: str, s: Standing) -> dict[str, Any]:
    fastest = {name: getattr(s.fastest, name) for name in COLUMNS if name.startswith("time_s_")}
    return {
        "suite": suite.name,
        "run_id": run_id,
        "problem": s.problem.id,
        **s.setting._asdict(),
        "fastest": s.fastest.kernel,
        "numerics": s.fastest.numerics,
        **fastest,
        "runner_up": s.ranked[1].kernel if s.lead else "",
        **_ratio("ratio", s.lead),
        "fft": s.fft.kernel if s.fft else "",
        **_ratio("fft_speedup", s.fft_speedup),
    }


def _turn(change: Change | None) -> dict[str, Any]:
    if change is None:
        return {}
    previous = {"from": change.before.problem.id, "previous": change.before.fastest.kernel}
    return {"along": change.along, **previous, **_ratio("gain", change.gain)}


def _ratio(name: str, ratio: Ratio | None) -> dict[str, float | None]:
    if ratio is None:
        return {}
    return {name: ratio.median, f"{name}_ci95_low": ratio.low, f"{name}_ci95_high": ratio.high}
