"""The first findings of a report: whether op_T is slow and what to do about it, who is fastest, what is certain."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.plan.status import Status
from bench.record.result import Result
from bench.report.contest import APART, TIE, Contest, Ratio, speedup_of
from bench.report.format import count, digits, rate, row_time, short, time
from bench.report.run_data import RunData, work
from bench.report.tables import summary

QUESTION = "Is op_T slower, and what should I do about it?"
#: Parts of the names of kernels that transpose B first (gemm/cublas.tnn_geam) or read buffers as column-major.
OUT_OF_PLACE, IN_PLACE, COLUMN_MAJOR = ".tnn", ".inplace", "_colmajor"
MOST_ANSWERS, MOST_FASTEST, MOST_REASONS = 3, 12, 6


class Answer(NamedTuple):
    """The answer to the founding question for one product: the advice, and what it rests on."""

    subject: str
    advice: str
    evidence: list[str]


class Fastest(NamedTuple):
    """The fastest kernel of a problem in a setting, as the cells of a table."""

    problem: str
    setting: str
    kernel: str
    time: str
    rate: str
    roofline: str
    lead: str


def answers(data: RunData) -> list[Answer]:
    """Return an answer for each C = A x B^T that was also computed by transposing B first, the largest first."""
    products = [c for c in data.contests if c.op == "gemm" and c.fastest.layout == "NT"]
    products.sort(key=lambda c: -work(c.fastest))
    found = [(c, direct) for c in products if _with(c, OUT_OF_PLACE, IN_PLACE) and (direct := _direct(c))]
    return [_answer(data, c, direct) for c, direct in found[:MOST_ANSWERS]]


def _with(c: Contest, *marks: str) -> list[Result]:
    return [r for r in c.ranked if any(mark in r.kernel for mark in marks)]


def _direct(c: Contest) -> Result | None:
    """Return the kernel that hands op_T on: the baseline, on which those that transpose build, or the fastest.

    One that reads the buffers as column-major computes another product, and stands for op_T only if no other does.
    """
    handing = [r for r in c.ranked if r not in _with(c, OUT_OF_PLACE, IN_PLACE)]
    return min(handing, key=lambda r: (r.kernel != r.baseline, COLUMN_MAJOR in r.kernel, r.time_s_median), default=None)


def _answer(data: RunData, c: Contest, direct: Result) -> Answer:
    others = {
        f"transposing B {place} first": (rows[0], c.faster(rows[0], direct))
        for place, rows in (("out of place", _with(c, OUT_OF_PLACE)), ("in place", _with(c, IN_PLACE)))
        if rows
    }
    slower, against_op_n = _against_op_n(data, c, direct)
    evidence = [f"op_T by {short(direct.kernel)}: {time(*row_time(direct))}.", against_op_n]
    evidence += [
        f"{what[0].upper()}{what[1:]} ({short(r.kernel)}): {_speed_of_op_t(ratio)}."
        for what, (r, ratio) in others.items()
    ]
    return Answer(_subject(data, c), slower + _advice(direct, others), evidence)


def _speed_of_op_t(ratio: Ratio) -> str:
    """Return `1.2x [1.1, 1.3] the speed of op_T, faster`, with the remark on a ratio not measured in turn."""
    side = f"a {TIE} (the interval includes 1)" if ratio.side == TIE else ratio.side
    return f"{ratio} the speed of op_T, {side}" + _apart(ratio)


def _apart(ratio: Ratio) -> str:
    return "" if ratio.in_turn else f", {APART}"


def _subject(data: RunData, c: Contest) -> str:
    dims = data.dims_of[c.problem]
    if not all(name in dims for name in "mnk"):
        return f"{c.problem}, {c.setting.title}"
    return f"C = A x B^T, A {dims['m']}x{dims['k']}, B {dims['n']}x{dims['k']}, {c.fastest.dtype}; {c.setting.title}"


def _advice(direct: Result, others: dict[str, tuple[Result, Ratio]]) -> str:
    better = {what: found for what, found in others.items() if found[1].certain and found[1].median > 1}
    if better:
        what, (r, ratio) = max(better.items(), key=lambda item: item[1][1].median)
        return f"{what[0].upper()}{what[1:]} pays: {short(r.kernel)} has {ratio} the speed of op_T{_apart(ratio)}."
    if all(ratio.certain for _, ratio in others.values()):
        verb = "is" if len(others) == 1 else "are both"
        return f"Leave op_T to the library ({short(direct.kernel)}): {' and '.join(others)} {verb} slower."
    return f"Leave op_T to the library ({short(direct.kernel)}): no transposition first is certain to be faster."


def _against_op_n(data: RunData, c: Contest, direct: Result) -> tuple[str, str]:
    """Return whether op_T is slower than the product with B stored the other way, in short and with its evidence."""
    same = c.problem.replace("/NT", "/NN", 1)
    found = next((o for o in data.contests if (o.problem, o.setting) == (same, c.setting)), None)
    if found is None:
        return "", f"op_N on these sizes was not measured; `kernelmark run {same}` does."
    op_n = found.of(direct.kernel) or found.fastest
    ratio = c.faster(op_n, direct)
    yes = {"faster": "Yes", "slower": "No"}.get(ratio.side)
    briefly = f"{yes}: op_N has {ratio} its speed{_apart(ratio)}. " if yes else "No difference from op_N is certain. "
    return briefly, f"op_N on the same sizes ({short(op_n.kernel)}): {time(*row_time(op_n))}, {_speed_of_op_t(ratio)}."


def sentences(data: RunData) -> list[str]:
    """Return for each operation who wins how often, and which speedups are certain."""
    by_op: dict[str, list[Contest]] = defaultdict(list)
    for c in data.contests:
        by_op[c.op].append(c)
    return [f"{op}: {' '.join(_of_operation(contests))}" for op, contests in by_op.items()]


def _of_operation(contests: list[Contest]) -> Iterator[str]:
    wins = Counter(c.fastest.kernel for c in contests)
    who = ", ".join(f"{short(k)}{f' ({n} of {len(contests)})' * (len(contests) > 1)}" for k, n in wins.most_common(4))
    problems = count(len({c.problem for c in contests}), "problem")
    yield f"{problems}; fastest: {who}{', others' if len(wins) > 4 else ''}."
    rows = list({r.case: r for c in contests for r in c.ranked if r.speedup}.values())
    certain = [r for r in rows if speedup_of(r).certain]
    if rows:
        faster, slower = (sum((speedup_of(r).median > 1) is want for r in certain) for want in (True, False))
        yield f"Of {len(rows)} speedups over the baseline {faster} are certainly above 1 and {slower} certainly below."
    if certain:
        best, worst = max(certain, key=speedup_of), min(certain, key=speedup_of)
        yield f"The largest: {_named(best)}." + (f" The smallest: {_named(worst)}." if worst is not best else "")


def _named(r: Result) -> str:
    return f"{speedup_of(r)} by {short(r.kernel)} on {r.problem}"


def fastest(data: RunData) -> tuple[list[Fastest], int]:
    """Return the fastest kernel of the problems that take longest, in the order of the run; and how many there are."""
    long = sorted(data.contests, key=lambda c: -(c.fastest.time_s_median or 0.0) * c.fastest.count)[:MOST_FASTEST]
    chosen = [c for c in data.contests if c in long]
    return [_fastest(c) for c in chosen], len(data.contests)


def _fastest(c: Contest) -> Fastest:
    r, ratio = c.fastest, c.lead
    lead = ", ".join([f"{ratio} over {short(c.ranked[1].kernel)}", *ratio.remarks]) if ratio else ""
    roofline = f"{digits(r.roofline_pct)} %" if r.roofline_pct else ""
    return Fastest(c.problem, c.setting.title, short(r.kernel), time(*row_time(r)), rate(r), roofline, lead)


def failures(rows: Sequence[Result]) -> list[str]:
    """Return what has no result and why, the most frequent first."""
    reasons = Counter((r.status, r.kernel, r.reason) for r in rows if r.status != Status.OK)
    lines = [
        f"{number} {status}: {kernel}: {reason or 'no reason was recorded'}"
        for (status, kernel, reason), number in reasons.most_common(MOST_REASONS)
    ]
    rest = len(reasons) - len(lines)
    return lines + ([f"{rest} more reasons in the table below"] if rest > 0 else [])


def tally(rows: Sequence[Result]) -> str:
    """Return `199 rows: 190 ok, 9 unsupported`, or that there is none."""
    if not rows:
        return "This run has no rows."
    text = summary(rows)
    if not any(r.time_s_median for r in rows):
        text += ". None has a time, so there is nothing to compare or to draw"
    return text + "."
