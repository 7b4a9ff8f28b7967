"""The fastest kernel of each problem of a suite, and where the winner changes, as tables and CSV."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from typing import IO, Any

from bench.plan.suites import Suite
from bench.report.contest import Contest, Ratio, Setting
from bench.report.format import row_time, seconds, short, spread, yes_or_no
from bench.report.standings import Change, Kin, changes, fastest_fft, fft_speedup, siblings
from bench.report.tables import filled_table

COLUMNS = (
    "suite", "run_id", "problem", "device", "device_name", "threads", "mode", "precision",
    "fastest", "numerics", "time_s_median", "time_s_ci95_low", "time_s_ci95_high",
    "runner_up", "ratio", "ratio_ci95_low", "ratio_ci95_high",
    "fft", "fft_speedup", "fft_speedup_ci95_low", "fft_speedup_ci95_high",
    "along", "from", "previous", "gain", "gain_ci95_low", "gain_ci95_high",
    "ratio_in_turn", "fft_speedup_in_turn", "gain_in_turn",
)  # fmt: skip
HEADERS = ("problem", "fastest", "time", "95 %", "next", "slower by", "FFT", "FFT speedup")
KIN_HEADERS = ("kernel", "sibling", "against", "faster by")


def render(suite: Suite, found: Sequence[Contest]) -> str:
    """Return a table for each setting, the changes along the axes that the suite sweeps, and siblings in turn."""
    if not found:
        return f"{suite.name}: this run has no time for any of its problems"
    settings: dict[Setting, list[Contest]] = defaultdict(list)
    for contest in found:
        settings[contest.setting].append(contest)
    turned = changes(suite, found)
    kin = siblings(suite, found)
    parts = [_section(setting, rows, turned, kin) for setting, rows in settings.items()]
    measured = len({contest.problem for contest in found})
    total = len({entry.problem for entry in suite.entries()})
    return "\n\n".join([*parts, f"{suite.name}: {measured} of {total} problems have a time"])


def _section(setting: Setting, rows: Sequence[Contest], turned: Sequence[Change], kin: Sequence[Kin]) -> str:
    own = [_sentence(change) for change in turned if change.after.setting == setting]
    table = filled_table(HEADERS, [_cells(contest) for contest in rows])
    found = [_kin_cells(one) for one in kin if one.setting == setting]
    beside = ["", filled_table(KIN_HEADERS, found)] if found else []
    return "\n".join([setting.title, table, *([""] if own else []), *own, *beside])


def _kin_cells(kin: Kin) -> Sequence[str]:
    return short(kin.one.kernel), kin.one.problem, kin.other.problem, kin.ratio.words


def _cells(c: Contest) -> Sequence[str]:
    lead, fft, gain = c.lead, fastest_fft(c), fft_speedup(c)
    return (
        c.problem,
        short(c.fastest.kernel),
        seconds(c.fastest.time_s_median),
        spread(*row_time(c.fastest)),
        short(c.ranked[1].kernel) if lead else "",
        lead.words if lead else "",
        short(fft.kernel) if fft else "",
        gain.words if gain else "",
    )


def _sentence(change: Change) -> str:
    """Return `  r 5 to 7 (ID): cpu.im2col, ahead 1.4x [1.3, 1.5], gives way to pyfftw.tiled, ahead 1.8x [1.7, 1.9]`."""
    old, new = (
        f"{short(c.fastest.kernel)}, " + (f"ahead {gain.words}" if gain else "where the other has no time")
        for c, gain in ((change.before, change.gain_before), (change.after, change.gain))
    )
    where = f"{change.along} {change.here} to {change.there} ({change.after.problem})"
    return f"  {where}: {old}, gives way to {new}"


def write_csv(suite: Suite, run_id: str, found: Sequence[Contest], out: IO[str]) -> None:
    """Write a row for each problem and setting; `from` and `previous`: the neighbour where another won, and which.

    `ratio_in_turn` and the like: whether the two kernels shared a job, so that the interval is one of paired samples.
    """
    turned = {(change.after.problem, change.after.setting): change for change in changes(suite, found)}
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for c in found:
        writer.writerow(_row(suite, run_id, c) | _turn(turned.get((c.problem, c.setting))))


def _row(suite: Suite, run_id: str, c: Contest) -> dict[str, Any]:
    lead, fft, setting = c.lead, fastest_fft(c), c.setting
    return {
        "suite": suite.name,
        "run_id": run_id,
        "problem": c.problem,
        "device": setting.device,
        "device_name": setting.machine,
        "threads": setting.threads,
        "mode": setting.mode,
        "precision": setting.precision,
        "fastest": c.fastest.kernel,
        "numerics": c.fastest.numerics,
        **{name: getattr(c.fastest, name) for name in COLUMNS if name.startswith("time_s_")},
        "runner_up": c.ranked[1].kernel if lead else "",
        **_ratio("ratio", lead),
        "fft": fft.kernel if fft else "",
        **_ratio("fft_speedup", fft_speedup(c)),
    }


def _turn(change: Change | None) -> dict[str, Any]:
    if change is None:
        return {}
    previous = {"from": change.before.problem, "previous": change.before.fastest.kernel}
    return {"along": change.along, **previous, **_ratio("gain", change.gain)}


def _ratio(name: str, ratio: Ratio | None) -> dict[str, Any]:
    if ratio is None:
        return {}
    ends = {f"{name}_ci95_low": ratio.low, f"{name}_ci95_high": ratio.high}
    return {name: ratio.median, **ends, f"{name}_in_turn": yes_or_no(ratio.in_turn)}
