"""The fastest kernel of each problem of a suite, and where the winner changes, as tables and CSV."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import IO, Any

from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.report.contest import APART, TIE, Contest, Ratio, Setting
from kernelmark.bench.report.format import count, interval, row_time, seconds, short, spread, yes_or_no
from kernelmark.bench.report.layout import Column, paragraph, table
from kernelmark.bench.report.noise import MARK, marked, noise_of
from kernelmark.bench.report.standings import Change, Kin, changes, fastest_fft, fft_speedup, siblings

COLUMNS = (
    "suite", "run_id", "problem", "device", "device_name", "threads", "mode", "precision",
    "fastest", "numerics", "time_s_median", "time_s_ci95_low", "time_s_ci95_high",
    "runner_up", "ratio", "ratio_ci95_low", "ratio_ci95_high",
    "fft", "fft_speedup", "fft_speedup_ci95_low", "fft_speedup_ci95_high",
    "along", "from", "previous", "gain", "gain_ci95_low", "gain_ci95_high",
    "ratio_in_turn", "fft_speedup_in_turn", "gain_in_turn",
)  # fmt: skip
STANDING = (
    Column("problem"),
    Column("fastest"),
    Column("time", "right"),
    Column("95 %", "right", spare=4),
    Column("next", spare=2),
    Column("ahead of next", wraps=18),
    Column("FFT", spare=3),
    Column("FFT against the rest", spare=1, wraps=18),
)
KIN = (Column("kernel"), Column("sibling"), Column("against", spare=1), Column("sibling's speed", wraps=18))


def render(suite: Suite, found: Sequence[Contest]) -> str:
    """Return a table for each setting, the takeovers along the axes that the suite sweeps, and siblings in turn."""
    if not found:
        return f"{suite.name}: this run has no time for any of its problems"
    settings: dict[Setting, list[Contest]] = defaultdict(list)
    for contest in found:
        settings[contest.setting].append(contest)
    turned = changes(suite, found)
    kin = siblings(suite, found)
    parts = [_section(suite, rows, turned, kin) for rows in settings.values()]
    measured = len({contest.problem for contest in found})
    total = len({entry.problem for entry in suite.entries()})
    return "\n\n".join([*parts, f"{suite.name}: {measured} of {count(total, 'problem')} timed"])


def _section(suite: Suite, rows: Sequence[Contest], turned: Sequence[Change], kin: Sequence[Kin]) -> str:
    setting = rows[0].setting
    parts = [paragraph(setting.title), table(STANDING, [_cells(contest) for contest in rows], titled=True)]
    if sentence := noise_of(r for contest in rows for r in contest.ranked).sentence:
        parts.append(paragraph(f"{MARK} {sentence}", "  "))
    own = [_sentence(change) for change in turned if change.after.setting == setting]
    if axes := ", ".join(dict.fromkeys(axis for sweep in suite.sweeps for axis in sweep.along)):
        parts += ["", *(paragraph(text, "  ") for text in own or [f"no takeover along {axes} is certain"])]
    if found := [_kin_cells(one) for one in kin if one.setting == setting]:
        parts += ["", table(KIN, found, titled=True)]
    return "\n".join(parts)


def _kin_cells(kin: Kin) -> Sequence[str]:
    return short(kin.one.kernel), kin.one.problem, kin.other.problem, _words(kin.ratio)


def _cells(c: Contest) -> Sequence[str]:
    lead, fft, gain = c.lead, fastest_fft(c), fft_speedup(c)
    return (
        c.problem,
        short(c.fastest.kernel),
        marked(seconds(c.fastest.time_s_median), c.fastest),
        spread(*row_time(c.fastest)),
        short(c.ranked[1].kernel) if lead else "",
        _words(lead),
        short(fft.kernel) if fft else "",
        _words(gain),
    )


def _words(ratio: Ratio | None) -> str:
    """Return `1.4x [1.3, 1.5]`, or `tie [0.9, 1.1]` where the interval includes 1, with its remarks."""
    if ratio is None:
        return ""
    if ratio.side == TIE:
        tie = f"{TIE} {interval(ratio.low, ratio.high, '{:.3g}'.format)}"
        return tie if ratio.in_turn else f"{tie} ({APART})"
    return ratio.words


def _sentence(change: Change) -> str:
    """Return `r 3 to 5: cpu.im2col, ahead 1.4x [1.3, 1.5], gives way to pyfftw.tiled, ahead 1.8x [1.7, 1.9] (ID)`."""
    old, new = (
        f"{short(change.old)}, ahead {change.gain_before.words}",
        f"{short(change.new)}, ahead {change.gain.words}",
    )
    return f"{change.along} {change.here} to {change.there}: {old}, gives way to {new} ({change.after.problem})"


def write_csv(suite: Suite, run_id: str, found: Sequence[Contest], out: IO[str]) -> None:
    """Write a row for each problem and setting; `from` and `previous`: where another kernel won, and which.

    `ratio_in_turn` and the like: whether the two kernels shared a job, so that the interval is one of paired samples.
    """
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(suite, run_id, found))


def rows(suite: Suite, run_id: str, found: Sequence[Contest]) -> Iterator[dict[str, Any]]:
    """Yield the values of `COLUMNS` that are known, for each problem and setting."""
    turned = {(change.after.problem, change.after.setting): change for change in changes(suite, found)}
    for c in found:
        yield _row(suite, run_id, c) | _turn(turned.get((c.problem, c.setting)))


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
    previous = {"from": change.before.problem, "previous": change.old}
    return {"along": change.along, **previous, **_ratio("gain", change.gain)}


def _ratio(name: str, ratio: Ratio | None) -> dict[str, Any]:
    if ratio is None:
        return {}
    ends = {f"{name}_ci95_low": ratio.low, f"{name}_ci95_high": ratio.high}
    return {name: ratio.median, **ends, f"{name}_in_turn": yes_or_no(ratio.in_turn)}
