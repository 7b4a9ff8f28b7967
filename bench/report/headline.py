"""The head of a report: the title of what was run, where and when, and three numbers that fit it."""

from collections.abc import Sequence
from datetime import datetime
from statistics import median

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.result import Result
from kernelmark.bench.report import tuning
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.findings import Winner, of_contests, winners
from kernelmark.bench.report.format import digits, factor, interval, rate, row_time, seconds, short
from kernelmark.bench.report.founding import FoundingProduct, answers
from kernelmark.bench.report.noise import marked
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tuning import Number

MOST_TITLES = 2


def title(data: RunData, registry: Registry | None) -> str:
    """Return the titles of the run's suites; the name of one that cannot be found here."""
    asked = data.run.plan.get("suites") or data.run.suites
    titles = [_title(text, registry) for text in asked]
    rest = len(titles) - MOST_TITLES
    more = [f"{rest} more"] if rest > 0 else []
    found = "; ".join(titles[:MOST_TITLES] + more) or "A run without a suite"
    return f"{tuning.title(data)}: {found}" if data.tunes else found


def _title(text: str, registry: Registry | None) -> str:
    if registry is None:
        return text
    try:
        return find_suite(text, registry).title
    except UsageError:
        return text  # a suite's file that is no longer there


def date(data: RunData) -> str:
    """Return `22 November 2026, 15:35 UTC`; what was recorded where that is no time."""
    try:
        began = datetime.fromisoformat(data.run.started_at)
    except ValueError:
        return data.run.started_at
    return f"{began.day} {began:%B %Y, %H:%M} {began.tzname() or ''}".rstrip()


def numbers(data: RunData) -> list[Number]:
    """Return three numbers: of a tuning, of the founding question, of the one contest, or of all; fewer of few rows."""
    if data.tunes:
        return tuning.numbers(data)
    if founding := answers(data):
        return _of_founding(founding[0])
    found = winners(data)
    if not found:
        return [_fastest(r) for r in sorted(data.timed, key=lambda r: r.time_s_median or 0.0)[:1]]
    contests = [c for w in found for c in w.contests]
    if len(contests) == 1:
        (c,), (lead,) = contests, found[0].leads
        behind = Number(factor(lead.median), f"its speed over {short(c.ranked[1].kernel)}", _sure(lead))
        rated = Number(_rate(c.fastest), "its rate", _share(c.fastest))
        return [_fastest(c.fastest), behind, *[rated] * bool(rate(c.fastest))]
    return _of_many(data, found)


def _of_founding(answer: FoundingProduct) -> list[Number]:
    op_t, best = answer.op_t, answer.best
    found = (
        [Number(factor(answer.speed.median), "speed of OP_T over OP_N", _sure(answer.speed))] if answer.speed else []
    )
    if best:
        label = f"speed with B transposed {best.place} first, over OP_T"
        found.append(Number(factor(best.speed.median), label, f"{_sure(best.speed)}; {short(best.row.kernel)}"))
    return [*found, Number(_rate(op_t), f"OP_T by {short(op_t.kernel)}", _time_and_share(op_t))]


def _of_many(data: RunData, found: Sequence[Winner]) -> list[Number]:
    """Return who wins, or else the best share of the roofline; how many winners are certain; and by how much."""
    contests, leads = [c for w in found for c in w.contests], [lead for w in found for lead in w.leads]
    certain = sum(lead.side == "faster" for lead in leads)
    ranks = sorted(lead.median for lead in leads)
    sure = Number(f"{certain} of {len(leads)}", "winners are certain", "the others tie with the next kernel")
    lead = Number(factor(median(ranks)), "median lead of the winner over the next", f"at most {factor(ranks[-1])}")
    if len(found) == 1:
        label = f"{_noun(contests)} won by {short(found[0].kernel)}"
        return [Number(f"{found[0].wins} of {len(contests)}", label, found[0].op), sure, lead]
    return [sure, lead, *_roofline(data)]


def _roofline(data: RunData) -> list[Number]:
    """Return the row that comes nearest to its bound, if any has one."""
    best = max((r for r in data.timed if r.roofline_pct), key=lambda r: r.roofline_pct or 0.0, default=None)
    if best is None:
        return []
    return [
        Number(
            f"{marked(digits(best.roofline_pct), best)} %",
            "of the roofline at best",
            f"{best.kernel} on {best.problem}",
        )
    ]


def _noun(contests: Sequence[object]) -> str:
    return of_contests(contests).partition(" ")[2]  # type: ignore[arg-type]


def _sure(ratio: Ratio) -> str:
    """Return `[0.97, 1.03], tie`."""
    ends = interval(ratio.low, ratio.high, "{:.3g}".format)
    return ", ".join(filter(None, (ends, ratio.side, *ratio.remarks[:1] * (not ratio.in_turn))))


def _fastest(r: Result) -> Number:
    return Number(
        marked(seconds(r.time_s_median), r), f"fastest: {short(r.kernel)}", interval(*row_time(r)[1:], seconds)
    )


def _rate(r: Result) -> str:
    return marked(rate(r) or seconds(r.time_s_median), r)


def _share(r: Result) -> str:
    return f"{digits(r.roofline_pct)} % of the roofline" if r.roofline_pct else ""


def _time_and_share(r: Result) -> str:
    return ", ".join(filter(None, (seconds(r.time_s_median), _share(r))))
