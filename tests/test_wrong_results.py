"""The library of wrong results: each is seen by the checker, and right ones are not."""

import pytest

from bench.plan.discovery import discover
from bench.plan.verdict import Verdict
from bench.selftest.wrong import check, library
from bench.selftest.wrong.library import Family

MEMBERS = [wrong for family in check.FAMILIES for wrong in family.members]


def test_every_operation_and_at_least_sixty_ideas_are_there():
    assert {wrong.problem.partition("/")[0] for wrong in MEMBERS} == set(discover().operations)
    assert len({(wrong.name, wrong.problem.partition("/")[0], wrong.numerics) for wrong in MEMBERS}) >= 60


@pytest.mark.parametrize(
    "family",
    [
        check.GEMM,
        check.EPILOGUES,
        pytest.param(check.ARITHMETIC, marks=pytest.mark.long),
        pytest.param(check.CONV, marks=pytest.mark.long),
        check.MOVES,
        check.SUMS,
        *check.COMPRESSED,
    ],
    ids=["gemm", "epilogues", "arithmetic", "conv", "moves", "sums", "onebit", "int8"],
)
def test_each_wrong_result_is_seen_on_a_draw(family):
    findings = list(library.trial((family,), 1, lambda: None))
    assert len(findings) == len(family.members)
    assert [finding for finding in findings if finding.holds is False] == []


def test_a_checker_that_sees_nothing_fails_the_trial(monkeypatch):
    monkeypatch.setattr("kernels.gemm._reference.Reference.check", lambda *_: Verdict())
    small = tuple(wrong for wrong in check.GEMM.members if "m33n65" in wrong.problem)
    findings = list(library.trial((Family(check.GEMM.exact, small),), 2, lambda: None))
    assert {finding.found for finding in findings} == {"0 of 2"}
    assert not any(finding.holds for finding in findings)
