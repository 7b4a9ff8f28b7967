"""Verdicts from intervals: on which side of a claim's number each lies as a whole."""

from collections.abc import Iterable, Sequence

import msgspec

from kernelmark.bench.claims.catalog import Confirm
from kernelmark.bench.claims.findings import ClaimRatio
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import TIE, Ratio

VERDICTS = ("confirmed", "refuted", "depends", "not measured", "not testable here")
CONFIRMED, REFUTED, DEPENDS, NOT_MEASURED, NOT_TESTABLE = VERDICTS
YES, NO, OPEN = ANSWERS = ("yes", "no", TIE)


class JudgedRatio(msgspec.Struct, frozen=True):
    """One number of a claim: where, by which kernels, whether it confirms it (one of ANSWERS), and its interval.

    in_turn: whether the rows that it sets against each other shared a job. rows: those that it is formed from.
    """

    where: str
    by: str
    answer: str
    ratio: float
    ci95_low: float | None
    ci95_high: float | None
    in_turn: bool
    rows: tuple[str, ...] = ()

    @property
    def interval(self) -> str:
        """Return `1.6x [1.5, 1.7]`."""
        return str(Ratio(self.ratio, self.ci95_low, self.ci95_high))


def judged(finding: ClaimRatio, confirm: Confirm) -> JudgedRatio:
    """Return a finding with its answer."""
    ratio = finding.ratio
    return JudgedRatio(finding.where, finding.by, side(ratio, confirm), *ratio[:4], rows=named(finding.rows))


def named(rows: Iterable[Result]) -> tuple[str, ...]:
    """Return `RUN gemm/scipy.sgemm gemm/m8n8k8/f32/NT cold t2` for each row: its run and its case."""
    return tuple(dict.fromkeys(f"{r.run_id} {r.case}" for r in rows))


def side(ratio: Ratio, confirm: Confirm) -> str:
    """Return `yes` or `no` where the whole interval lies on that side of the number, else `tie`."""
    low, high = confirm.limits
    if ratio.low is None or ratio.high is None:
        return OPEN
    if low < ratio.low and ratio.high < high:
        return YES
    return NO if ratio.high < low or high < ratio.low else OPEN


def judge(answers: Sequence[str], whole: bool) -> str:
    """Return `confirmed` or `refuted` where every problem, and none is left out, has that answer beyond doubt."""
    if whole and set(answers) == {YES}:
        return CONFIRMED
    return REFUTED if whole and set(answers) == {NO} else DEPENDS
