"""What a run has to say first: whether op_T is slow and what to do about it, who is fastest, what is certain."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.plan.status import Status
from bench.record.result import Result
from bench.report.run_data import Contest, RunData, short, work
from bench.report.standings import Ratio
from bench.report.tables import seconds

QUESTION = "Is op_T slower, and what should I do about it?"
#: How the kernels of a product end that transpose B first, as gemm/numpy.tnn and gemm/cublas.tnn_geam do.
OUT_OF_PLACE, IN_PLACE, COLUMN_MAJOR = ".tnn", ".inplace", "_colmajor"
MOST_ANSWERS, MOST_FASTEST, MOST_REASONS = 3, 12, 6


class Answer(NamedTuple):
    """To the founding question, for one product: the advice, and what it rests on."""

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
    """For each product C = A x B^T that was also computed by transposing B first, the largest first."""
    products = [c for c in data.contests if c.op == "gemm" and c.ranked[0].layout == "NT"]
    products.sort(key=lambda c: -work(c.ranked[0]))
    found = [(c, direct) for c in products if _with(c, OUT_OF_PLACE, IN_PLACE) and (direct := _direct(c))]
    return [_answer(data, c, direct) for c, direct in found[:MOST_ANSWERS]]


def _with(c: Contest, *marks: str) -> list[Result]:
    return [r for r in c.ranked if any(mark in r.kernel for mark in marks)]


def _direct(c: Contest) -> Result | None:
    """The kernel that hands op_T on: the baseline, on which those that transpose first are built, or the fastest.

    One that reads the buffers as column-major computes another product, and stands for op_T only if no other does.
    """
    handing = [r for r in c.ranked if r not in _with(c, OUT_OF_PLACE, IN_PLACE)]
    return min(handing, key=lambda r: (r.kernel != r.baseline, COLUMN_MAJOR in r.kernel, r.time_s_median), default=None)


def _answer(data: RunData, c: Contest, direct: Result) -> Answer:
    others = {
        f"transposing B {place} first": (rows[0], data.faster(rows[0], direct))
        for place, rows in (("out of place", _with(c, OUT_OF_PLACE)), ("in place", _with(c, IN_PLACE)))
        if rows
    }
    slower, against_op_n = _against_op_n(data, c, direct)
    evidence = [f"op_T by {short(direct.kernel)}: {timed(direct)}.", against_op_n]
    evidence += [
        f"{what[0].upper()}{what[1:]} ({short(r.kernel)}): {ratio} the speed of op_T, {verdict(ratio)}."
        for what, (r, ratio) in others.items()
    ]
    return Answer(_subject(data, c), slower + _advice(direct, others), evidence)


def _subject(data: RunData, c: Contest) -> str:
    dims = data.dims_of[c.problem]
    if not all(name in dims for name in "mnk"):
        return f"{c.problem}, {c.title}"
    return f"C = A x B^T, A {dims['m']}x{dims['k']}, B {dims['n']}x{dims['k']}, {c.ranked[0].dtype}; {c.title}"


def _advice(direct: Result, others: dict[str, tuple[Result, Ratio]]) -> str:
    better = {what: found for what, found in others.items() if found[1].certain and found[1].median > 1}
    if better:
        what, (r, ratio) = max(better.items(), key=lambda item: item[1][1].median)
        return f"{what[0].upper()}{what[1:]} pays: {short(r.kernel)} has {ratio} the speed of op_T."
    if all(ratio.certain for _, ratio in others.values()):
        verb = "is" if len(others) == 1 else "are both"
        return f"Leave op_T to the library ({short(direct.kernel)}): {' and '.join(others)} {verb} slower."
    return f"Leave op_T to the library ({short(direct.kernel)}): no transposition first is certain to be faster."


def _against_op_n(data: RunData, c: Contest, direct: Result) -> tuple[str, str]:
    """Whether op_T is slower than the same product with B stored the other way, in short and with what it rests on."""
    same = c.problem.replace("/NT", "/NN", 1)
    found = next((o for o in data.contests if o.problem == same and (o.setting, o.isa) == (c.setting, c.isa)), None)
    if found is None:
        return "", f"op_N on these sizes was not measured; `kernelmark run {same}` does."
    op_n = next((r for r in found.ranked if r.kernel == direct.kernel), found.ranked[0])
    ratio = data.faster(op_n, direct)
    short_answer = {
        "faster": f"Yes: op_N has {ratio} its speed. ",
        "slower": f"No: op_N has {ratio} its speed. ",
    }.get(verdict(ratio), "No difference from op_N is certain. ")
    who = f"op_N on the same sizes ({short(op_n.kernel)}, timed apart)"
    return short_answer, f"{who}: {timed(op_n)}, {ratio} the speed of op_T, {verdict(ratio)}."


def verdict(ratio: Ratio) -> str:
    """In words, whether the interval of a ratio leaves no doubt."""
    if ratio.low is None:
        return "without an interval"
    if not ratio.certain:
        return "not told apart"
    return "faster" if ratio.median > 1 else "slower"


def timed(r: Result) -> str:
    """`473 ms [466, 488 ms]`."""
    if r.time_s_ci95_low is None or r.time_s_ci95_high is None:
        return seconds(r.time_s_median)
    return f"{seconds(r.time_s_median)} [{seconds(r.time_s_ci95_low)}, {seconds(r.time_s_ci95_high)}]"


def sentences(data: RunData) -> list[str]:
    """For each operation who wins how often, and which speedups are certain."""
    by_op: dict[str, list[Contest]] = defaultdict(list)
    for c in data.contests:
        by_op[c.op].append(c)
    return [f"{op}: {' '.join(_of_operation(contests))}" for op, contests in by_op.items()]


def _of_operation(contests: list[Contest]) -> Iterator[str]:
    wins = Counter(c.ranked[0].kernel for c in contests)
    who = ", ".join(f"{short(k)}{f' ({n} of {len(contests)})' * (len(contests) > 1)}" for k, n in wins.most_common(4))
    problems = len({c.problem for c in contests})
    yield f"{problems} problem{'s' * (problems > 1)}; fastest: {who}{', others' if len(wins) > 4 else ''}."
    rows = list({r.case: r for c in contests for r in c.ranked if r.speedup}.values())
    certain = [r for r in rows if ratio_of(r).certain]
    if rows:
        faster, slower = (sum((ratio_of(r).median > 1) is want for r in certain) for want in (True, False))
        yield f"Of {len(rows)} speedups over the baseline {faster} are certainly above 1 and {slower} certainly below."
    if certain:
        best, worst = max(certain, key=lambda r: r.speedup or 0.0), min(certain, key=lambda r: r.speedup or 0.0)
        yield f"The largest: {_named(best)}." + (f" The smallest: {_named(worst)}." if worst is not best else "")


def ratio_of(r: Result) -> Ratio:
    """A row's speedup with its interval."""
    return Ratio(r.speedup or 0.0, r.speedup_ci95_low, r.speedup_ci95_high)


def _named(r: Result) -> str:
    return f"{ratio_of(r)} by {short(r.kernel)} on {r.problem}"


def fastest(data: RunData) -> tuple[list[Fastest], int]:
    """The fastest kernel of the problems that take longest, in the order of the run; and of how many problems."""
    long = sorted(data.contests, key=lambda c: -(c.ranked[0].time_s_median or 0.0) * c.ranked[0].count)[:MOST_FASTEST]
    chosen = [c for c in data.contests if c in long]
    return [_fastest(data, c) for c in chosen], len(data.contests)


def _fastest(data: RunData, c: Contest) -> Fastest:
    r = c.ranked[0]
    rate = f"{r.gflop_per_s:.3g} GFLOP/s" if r.gflop_per_s else f"{r.gbyte_per_s:.3g} GB/s" if r.gbyte_per_s else ""
    lead = ""
    if len(c.ranked) > 1:
        ratio = data.faster(r, c.ranked[1])
        doubt = "" if ratio.certain else ", not told apart"
        lead = f"{ratio} over {short(c.ranked[1].kernel)}{doubt}"
    roofline = f"{r.roofline_pct:.3g} %" if r.roofline_pct else ""
    return Fastest(c.problem, c.title, short(r.kernel), timed(r), rate, roofline, lead)


def failures(rows: Sequence[Result]) -> list[str]:
    """What has no result and why, the most frequent first."""
    reasons = Counter((r.status, r.kernel, r.reason) for r in rows if r.status != Status.OK)
    lines = [
        f"{count} {status}: {kernel}: {reason or 'no reason was recorded'}"
        for (status, kernel, reason), count in reasons.most_common(MOST_REASONS)
    ]
    rest = len(reasons) - len(lines)
    return lines + ([f"{rest} more reasons in the table below"] if rest > 0 else [])


def tally(rows: Sequence[Result]) -> str:
    """`199 rows: 190 ok, 9 unsupported`, or that there is none."""
    if not rows:
        return "This run has no rows."
    counts = Counter(r.status for r in rows)
    text = f"{len(rows)} row{'s' * (len(rows) > 1)}: " + ", ".join(
        f"{n} {status}" for status, n in counts.most_common()
    )
    if not any(r.time_s_median for r in rows):
        text += ". None has a time, so there is nothing to compare or to draw"
    return text + "."
