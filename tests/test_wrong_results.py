"""The library of wrong results: each is seen by the checker, and right ones are not."""

import weakref

import numpy as np
import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.verdict import Verdict
from kernelmark.bench.selftest import wrong
from kernelmark.bench.selftest.wrong import conv, library
from kernelmark.bench.selftest.wrong.library import Family

MEMBERS = [member for family in wrong.FAMILIES for member in family.members]


def test_every_operation_and_at_least_sixty_ideas_are_there():
    assert {member.problem.partition("/")[0] for member in MEMBERS} == set(discover().operations)
    assert len({(member.name, member.problem.partition("/")[0], member.numerics) for member in MEMBERS}) >= 60


@pytest.mark.parametrize(
    "family",
    [
        wrong.GEMM,
        wrong.EPILOGUES,
        wrong.GROUPS,
        wrong.SCALES,
        pytest.param(wrong.ARITHMETIC, marks=pytest.mark.long),
        pytest.param(wrong.CONV, marks=pytest.mark.long),
        wrong.MOVES,
        wrong.SUMS,
        *wrong.COMPRESSED,
    ],
    ids=["gemm", "epilogues", "groups", "scales", "arithmetic", "conv", "moves", "sums", "onebit", "int8"],
)
def test_each_wrong_result_is_seen_on_a_draw(family):
    findings = list(library.trial((family,), 1, lambda: None))
    assert len(findings) == len(family.members)
    assert [finding for finding in findings if finding.holds is False] == []


def test_the_scratch_of_a_right_convolution_lasts_as_long_as_its_launch(monkeypatch):
    pytest.importorskip("numba")
    held, seen = [], []

    class Noted(conv.ScratchBuffers):
        def __init__(self, *args):
            super().__init__(*args)
            held.append(weakref.ref(self))

    class Looking(conv.OperandSet):
        def outputs(self, order):
            seen.append(held[0]() is not None)
            return super().outputs(order)

    monkeypatch.setattr(conv, "ScratchBuffers", Noted)
    monkeypatch.setattr(conv, "OperandSet", Looking)
    problem = discover().problem("conv/n1c2h5w5k3r3s3pad1/f32/nchw/fprop")
    assert conv.exact(problem, {"x": np.ones((1, 2, 5, 5)), "w": np.ones((3, 2, 3, 3))})[0, 0, 2, 2] == 18
    assert seen == [True]


def test_a_checker_that_sees_nothing_fails_the_trial(monkeypatch):
    monkeypatch.setattr("kernelmark.kernels.gemm._reference.Reference.check", lambda *_: Verdict())
    small = tuple(member for member in wrong.GEMM.members if "m33n65" in member.problem)
    findings = list(library.trial((Family(wrong.GEMM.exact, small),), 2, lambda: None))
    assert {finding.found for finding in findings} == {"0 of 2"}
    assert not any(finding.holds for finding in findings)
