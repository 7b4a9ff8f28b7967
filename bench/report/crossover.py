"""The fastest kernel of each problem of a suite, and where the winner changes, as tables, CSV and JSON."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec

from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.report.contest import APART, TIE, Contest, Ratio, Setting
from kernelmark.bench.report.format import count, interval, row_time, seconds, short, spread, yes_or_no
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.noise import MARK, marked, noise_of
from kernelmark.bench.report.runs import RunSummary, summary_of
from kernelmark.bench.report.standings import Change, Kin, changes, fastest_fft, fft_speedup, siblings

STANDING = (
    TableColumn("problem"),
    TableColumn("fastest"),
    TableColumn("time", "right"),
    TableColumn("95 %", "right", spare=4),
    TableColumn("next", spare=2),
    TableColumn("ahead of next", wraps=18),
    TableColumn("FFT", spare=3),
    TableColumn("FFT against the rest", spare=1, wraps=18),
)
KIN = (
    TableColumn("kernel"),
    TableColumn("sibling"),
    TableColumn("against", spare=1),
    TableColumn("sibling's speed", wraps=18),
)


class CrossoverRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"before": "from"}):
    """A problem in a setting. Its first columns are those of the fastest kernel; "" and null stand for none.

    ratio: how many times faster than the runner-up. from, previous: the neighbour where another kernel won, and which.
    """

    suite: str
    run_id: str
    problem: str
    device: str
    device_name: str
    threads: int
    mode: str
    precision: str
    fastest: str
    numerics: str
    time_s_median: float
    time_s_ci95_low: float | None
    time_s_ci95_high: float | None
    runner_up: str = ""
    ratio: float | None = None
    ratio_ci95_low: float | None = None
    ratio_ci95_high: float | None = None
    fft: str = ""
    fft_speedup: float | None = None
    fft_speedup_ci95_low: float | None = None
    fft_speedup_ci95_high: float | None = None
    along: str = ""
    before: str = ""
    previous: str = ""
    gain: float | None = None
    gain_ci95_low: float | None = None
    gain_ci95_high: float | None = None
    ratio_in_turn: bool | None = None
    fft_speedup_in_turn: bool | None = None
    gain_in_turn: bool | None = None


class CrossoverDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `crossover --json` prints. problems: how many the suite has, with a time or without."""

    run: RunSummary
    suite: str
    problems: int
    rows: list[CrossoverRow]


COLUMNS = CrossoverRow.__struct_encode_fields__


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
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows(suite, run_id, found):
        values = msgspec.to_builtins(row)
        writer.writerow({name: yes_or_no(v) if isinstance(v, bool) else v for name, v in values.items()})


def write_json(suite: Suite, store: Reader, run_id: str, found: Sequence[Contest], out: IO[str]) -> None:
    """Write a `CrossoverDocument`."""
    problems = len({entry.problem.id for entry in suite.entries()})
    document = CrossoverDocument(summary_of(store, run_id), suite.name, problems, list(rows(suite, run_id, found)))
    out.write(msgspec.json.encode(document).decode() + "\n")


def rows(suite: Suite, run_id: str, found: Sequence[Contest]) -> Iterator[CrossoverRow]:
    """Yield the row of each problem and setting."""
    turned = {(change.after.problem, change.after.setting): change for change in changes(suite, found)}
    for c in found:
        yield CrossoverRow(suite=suite.name, run_id=run_id, **_row(c), **_turn(turned.get((c.problem, c.setting))))


def _row(c: Contest) -> dict[str, Any]:
    lead, fft, setting = c.lead, fastest_fft(c), c.setting
    return {
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
    previous = {"before": change.before.problem, "previous": change.old}
    return {"along": change.along, **previous, **_ratio("gain", change.gain)}


def _ratio(name: str, ratio: Ratio | None) -> dict[str, Any]:
    if ratio is None:
        return {}
    ends = {f"{name}_ci95_low": ratio.low, f"{name}_ci95_high": ratio.high}
    return {name: ratio.median, **ends, f"{name}_in_turn": ratio.in_turn}
