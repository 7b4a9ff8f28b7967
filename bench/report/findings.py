"""The head of a report and its main findings: title, date, three numbers, the verdict, the fastest kernels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from statistics import median
from typing import NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import AGAINST, Status
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report import tuning
from kernelmark.bench.report.contest import TIE, Contest, Ratio, grouped, is_fair, speedup_of, why_unranked
from kernelmark.bench.report.format import count, ends, factor, interval, pace, rate, row_time, seconds, short, time
from kernelmark.bench.report.founding import FoundingProduct, answers
from kernelmark.bench.report.noise import marked, share
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tables import status_line
from kernelmark.bench.report.tuning import Number
from kernelmark.bench.report.variants import variant_lines

MOST_FASTEST, MOST_OPERATIONS = 12, 4


class Fastest(NamedTuple):
    """The fastest kernel of a problem in a setting, as cells of a table."""

    problem: str
    setting: str
    kernel: str
    time: str
    rate: str
    roofline: str
    lead: str


class Winner(NamedTuple):
    """The kernel that wins the most contests of an operation, and the number of its wins."""

    op: str
    kernel: str
    wins: int
    contests: list[Contest]

    @property
    def who(self) -> str:
        """Return the kernel's name if it wins more than half of the contests, otherwise `no overall winner`."""
        return short(self.kernel) if self.leads_most else "no overall winner"

    @property
    def share(self) -> str:
        return f"{self.wins}" if self.leads_most else f"at most {self.wins}"

    @property
    def leads_most(self) -> bool:
        return 2 * self.wins > len(self.contests)


def verdict(data: RunData, variants: bool = True) -> str:
    """Return a run's answer in a few sentences: the tile to use, whether to transpose first, or the fastest kernel.

    variants: whether to add the ratios between variants that were measured in turn. If no problem has two kernels to
    rank, these ratios take the place of the fastest kernel. The last sentences name kernels that are first in a table
    but not ranked. The page begins with this text, and `run` ends with it.
    """
    if data.tunes:
        return tuning.verdict(data)
    if founding := answers(data):
        problem = founding[0].contest.problem
        return " ".join([founding[0].words, *unranked(data, [r for r in data.timed if r.problem == problem])])
    lines = [
        f"{line}." for line in variant_lines(data.timed, data.threaded)[:MOST_OPERATIONS] if variants or not data.leads
    ]
    first = [] if lines and not data.leads else [_who_is_fastest(data)]
    return " ".join([*first, *lines, *unranked(data, data.timed)])


def variants_beside(data: RunData) -> list[str]:
    """Return the lines on ratios between variants that `verdict(data, variants=False)` omits."""
    founding = answers(data)
    told = {r.case for answer in founding[:1] for r in answer.contest.ranked}
    lines = variant_lines((r for r in data.timed if r.case not in told), data.threaded)
    return lines if data.leads or founding else lines[MOST_OPERATIONS:]


def unranked(data: RunData, rows: Sequence[Result]) -> Iterator[str]:
    """Yield a sentence on the kernels that are first in a table of these rows but not ranked, one for each reason."""
    several = [group for group in grouped(rows, lambda r: (r.problem, r.mode, r.isa)).values() if len(group) > 1]
    ranked = {r.case for c, _ in data.leads for r in c.ranked[:2]}
    heads = [min(group, key=lambda r: r.time_s_median or 0.0) for group in several]
    rivals = "has no rival with the same device, threads and precision"
    by_reason = grouped((r for r in heads if r.case not in ranked), lambda r: why_unranked(r) or rivals)
    for why, first in by_reason.items():
        where = f"{len(first)} of {count(len(several), 'table')}" if len(several) > 1 else "the table"
        kernels = [*map(short, dict.fromkeys(r.kernel for r in first))]
        which = "which" if len(kernels) == 1 else "each of which"
        yield f"First in {where}, but not ranked: {', '.join(kernels)}, {which} {why}."


def _who_is_fastest(data: RunData) -> str:
    leaders = winners(data)
    if not leaders:
        return "There is no verdict: no problem has the times of two kernels that can be ranked."
    if len(leaders) == 1:
        return _of_one(data, leaders[0])
    first = sorted(leaders[:MOST_OPERATIONS], key=lambda w: not w.leads_most)
    shown = [f"{w.who} for {w.op} ({w.share} of {len(w.contests)})" for w in first]
    more = f"; {count(len(leaders) - len(shown), 'more operation')} below" if len(leaders) > len(shown) else ""
    return f"Fastest: {', '.join(shown)}{more}. {_how_sure(data)}"


def winners(data: RunData) -> list[Winner]:
    """Return the winner of each operation in which kernels competed, the operation with the most contests first."""
    by_op = grouped((c for c, _ in data.leads), lambda c: c.op)
    first = {op: Counter(c.fastest.kernel for c in contests).most_common(1)[0] for op, contests in by_op.items()}
    return sorted((Winner(op, *first[op], contests) for op, contests in by_op.items()), key=lambda w: -len(w.contests))


def _of_one(data: RunData, w: Winner) -> str:
    if len(w.contests) > 1:
        where = f"{w.wins} of {of_contests(w.contests)}"
        who = f"Fastest: {w.who}, on" if w.leads_most else "No overall winner: none leads on more than"
        return f"{who} {where}. {_how_sure(data)}"
    ((c, lead),) = data.leads
    after = short(c.ranked[1].kernel)
    if lead.side == TIE:
        return f"Fastest: {short(w.kernel)}, in a tie with {after}: {lead} (the interval includes 1)."
    slower = row_time(c.fastest) > row_time(c.ranked[1])
    remarks = ", ".join([*lead.remarks, *["round by round, although its median is longer"] * slower])
    how = f"{lead} as fast as {after}" if lead.median >= 2 else f"{pace(lead.median)} {after}: {lead}"
    return f"Fastest: {short(w.kernel)}, {how}{f' ({remarks})' if remarks else ''}."


def _how_sure(data: RunData) -> str:
    certain = sum(lead.side == "faster" for _, lead in data.leads)
    lead, of = factor(median(lead.median for _, lead in data.leads)), of_contests([c for c, _ in data.leads])
    return f"The winner is certain on {certain} of {of}; the median lead over the next kernel is {lead}."


def of_contests(contests: Sequence[Contest]) -> str:
    """Return `14 problems`, or `28 contests` if a problem has several settings."""
    several = len({c.problem for c in contests}) < len(contests)
    return count(len(contests), "contest" if several else "problem")


def sentences(data: RunData) -> list[str]:
    """Return a text for each operation: the winning kernels with their numbers of wins, and the certain speedups."""
    by_op = grouped(data.contests, lambda c: c.op)
    return [f"{op}: {' '.join(_of_operation(contests))}" for op, contests in by_op.items()]


def _of_operation(contests: list[Contest]) -> Iterator[str]:
    decided = _decided(contests)
    wins = Counter(c.fastest.kernel for c in decided)
    who = ", ".join(f"{short(k)}{f' ({n} of {len(decided)})' * (len(decided) > 1)}" for k, n in wins.most_common(4))
    problems = count(len({c.problem for c in contests}), "problem")
    yield f"{problems}; fastest: {who}{', others' if len(wins) > 4 else ''}."
    ratios = [(speedup_of(r), r) for r in _with_speedup(contests)]
    certain = [(ratio, r) for ratio, r in ratios if ratio.certain]
    if ratios:
        faster, open_ = sum(ratio.median > 1 for ratio, _ in certain), len(ratios) - len(certain)
        yield f"Against the baseline: {faster} faster, {len(certain) - faster} slower, {open_} inconclusive."
    if certain:
        worst, best = (pick(certain, key=lambda pair: pair[0]) for pick in (min, max))
        smallest = f" The smallest: {_named(*worst)}." if worst[1] is not best[1] else ""
        yield f"The largest: {_named(*best)}.{smallest}"


def _decided(contests: Sequence[Contest]) -> Sequence[Contest]:
    """Return the contests with at least two kernels or, if there are none, all contests."""
    return [c for c in contests if len(c.ranked) > 1] or contests


def _with_speedup(contests: list[Contest]) -> Iterator[Result]:
    """Yield each row with a speedup once, even if it is in several contests."""
    for _, group in groupby(contests, key=lambda c: c.problem):
        yield from {id(r): r for c in group for r in c.ranked if r.speedup}.values()


def _named(ratio: Ratio, r: Result) -> str:
    return f"{ratio} by {short(r.kernel)} on {r.problem}"


def fastest(data: RunData) -> tuple[list[Fastest], int]:
    """Return the fastest kernels of the problems that take longest, in the run's order, and the number of problems."""
    decided = _decided(data.contests)
    long = sorted(decided, key=lambda c: -(c.fastest.time_s_median or 0.0) * c.fastest.count)[:MOST_FASTEST]
    return [_fastest(c) for c in decided if any(c is contest for contest in long)], len(decided)


def _fastest(c: Contest) -> Fastest:
    r, ratio = c.fastest, c.lead
    lead = ", ".join([f"{ratio} over {short(c.ranked[1].kernel)}", *ratio.remarks]) if ratio else ""
    roofline = f"{share(r)} %" if r.roofline_pct else ""
    return Fastest(c.problem, c.setting.title, short(r.kernel), marked(time(*row_time(r)), r), rate(r), roofline, lead)


class Refusal(NamedTuple):
    """The rows without a result for one reason: their number and kernels. against: whether this is a failure."""

    status: str
    reason: str
    rows: int
    kernels: list[str]
    against: bool


def refusals(rows: Sequence[Result]) -> list[Refusal]:
    """Return the rows without a result, by reason: failed checks first, then the most frequent reasons."""
    failed = (r for r in rows if r.status != Status.OK)
    refused = grouped(failed, lambda r: (r.status, r.reason or "no reason was recorded"))
    reasons = [
        Refusal(status, reason, len(group), sorted({r.kernel for r in group}), status in AGAINST)
        for (status, reason), group in refused.items()
    ]
    return sorted(reasons, key=lambda each: (not each.against, -each.rows))


def tally(rows: Sequence[Result]) -> str:
    """Return a sentence: `199 rows: 190 ok, 9 unsupported.` or `This run has no rows.`."""
    if not rows:
        return "This run has no rows."
    text = status_line(Counter(r.status for r in rows))
    if not any(r.time_s_median for r in rows):
        text += ". None has a time, so there is nothing to compare or to draw"
    return text + "."


MOST_TITLES = 2


def title(data: RunData, registry: Registry | None) -> str:
    """Return the titles of the run's suites; a suite that is not available here is represented by its name."""
    suites = data.run.plan.get("suites") or data.run.suites
    titles = [_title_of(text, registry) for text in suites]
    rest = len(titles) - MOST_TITLES
    more = [f"{rest} more"] if rest > 0 else []
    heading = "; ".join(titles[:MOST_TITLES] + more) or "A run without a suite"
    return f"Tuning of {short(data.tunes.kernel)}: {heading}" if data.tunes else heading


def _title_of(text: str, registry: Registry | None) -> str:
    with suppress(UsageError):  # a suite's file that is no longer there
        return find_suite(text, registry).title if registry else text
    return text


def date(data: RunData) -> str:
    """Return `22 November 2026, 15:35 UTC`, or the recorded text if it is not a time."""
    try:
        began = datetime.fromisoformat(data.run.started_at)
    except ValueError:
        return data.run.started_at
    return f"{began.day} {began:%B %Y, %H:%M} {began.tzname() or ''}".rstrip()


def numbers(data: RunData) -> list[Number]:
    """Return the numbers of a report's head, at most three, on the same subject as the verdict."""
    if data.tunes:
        return tuning.numbers(data)
    if founding := answers(data):
        return _of_founding(founding[0])
    leaders = winners(data)
    if not leaders:
        ranked = sorted((c.fastest for c in data.contests), key=lambda r: r.time_s_median or 0.0)
        return [_fastest_time(r) for r in ranked[:1]]
    if len(data.leads) == 1:
        ((c, lead),) = data.leads
        behind = Number(factor(lead.median), f"its speed over {short(c.ranked[1].kernel)}", _sure(lead))
        rated = Number(_rate(c.fastest), "its rate", _share(c.fastest))
        return [_fastest_time(c.fastest), behind, *[rated] * bool(rate(c.fastest))]
    return _of_many(data, leaders)


def _of_founding(answer: FoundingProduct) -> list[Number]:
    op_t, speed, best = answer.op_t, answer.speed, answer.best
    numbers = [Number(factor(speed.median), "speed of OP_T over OP_N", _sure(speed))] if speed else []
    if best:
        label = f"speed of transposing B {best.place} first, over OP_T"
        numbers.append(Number(factor(best.speed.median), label, f"{_sure(best.speed)}; {short(best.row.kernel)}"))
    taken = ", ".join(filter(None, (seconds(op_t.time_s_median), _share(op_t))))
    return [*numbers, Number(_rate(op_t), f"OP_T by {short(op_t.kernel)}", taken)]


def _of_many(data: RunData, winners: Sequence[Winner]) -> list[Number]:
    """Return the number of certain wins, the median lead, and the only winner's wins or the best roofline share."""
    certain = sum(lead.side == "faster" for _, lead in data.leads)
    ranks = sorted(lead.median for _, lead in data.leads)
    sure = Number(f"{certain} of {len(ranks)}", "winners are certain", "the others tie with the next kernel")
    lead = Number(factor(median(ranks)), "median lead of the winner over the next", f"at most {factor(ranks[-1])}")
    if len(winners) == 1:
        (w,) = winners
        label = f"{of_contests(w.contests).partition(' ')[2]} won by {short(w.kernel)}"
        return [Number(f"{w.wins} of {len(w.contests)}", label, w.op), sure, lead]
    best = max(filter(is_fair, data.timed), key=lambda r: r.roofline_pct or 0.0)
    if not best.roofline_pct:
        return [sure, lead]
    return [sure, lead, Number(f"{share(best)} %", "of the roofline at best", f"{best.kernel} on {best.problem}")]


def _sure(ratio: Ratio) -> str:
    """Return the interval of a ratio and its remarks: `[0.97, 1.03], tie`."""
    return ", ".join(filter(None, (ends(ratio.low, ratio.high), ratio.side, *ratio.remarks[:1] * (not ratio.in_turn))))


def _fastest_time(r: Result) -> Number:
    taken, around = marked(seconds(r.time_s_median), r), interval(*row_time(r)[1:], seconds)
    return Number(taken, f"fastest: {short(r.kernel)}", around)


def _rate(r: Result) -> str:
    return marked(rate(r) or seconds(r.time_s_median), r)


def _share(r: Result) -> str:
    return f"{share(r)} % of the roofline" if r.roofline_pct else ""
