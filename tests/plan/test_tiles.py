"""Tiles by name and by value: what a kernel's declaration makes of them, and what is refused."""

from types import SimpleNamespace

import pytest

from kernelmark.bench.plan.case import Plan, case_of, jobs
from kernelmark.bench.plan.chosen import contenders
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import KernelCall, Prefer
from kernelmark.bench.plan.limits import TYPICAL
from kernelmark.bench.plan.registry import cuda_kernel
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.sweep import Entry
from kernelmark.bench.plan.tiles import Refused, parse_tile, walk

PROBLEM = "gemm/m64n48k8/f32/NN"


@pytest.fixture
def tuned(own):
    """A kernel whose tiles are refused for several reasons, and preferred in an order that is not the space's."""

    def valid(p, t, device):
        if t.BM % t.WM:
            return f"WM = {t.WM} does not divide BM = {t.BM}"
        return f"{t.BK} is deeper than {p.k}" if p.k < t.BK else None

    return own(
        "tuned",
        tunables={"BM": (16, 32, 64), "WM": (8, 16, 32, 64), "BK": (4, 8, 16)},
        valid=valid,
        prefer=Prefer(
            ({"BM": 64, "WM": 32, "BK": 16}, {"BM": 32, "WM": 8, "BK": 8}, {"BM": 16, "WM": 16, "BK": 4}),
            unless=lambda p, t, device: "too many rows" if t.BM == 32 and p.m > 100 else None,
        ),
        executed=lambda p, t: p.flop * t.BK,
    )


def tile(**values):
    return SimpleNamespace(**values)


def test_the_default_is_the_first_preferred_tile_that_can_be_and_is_not_left_to_the_next(tuned, registry):
    assert tuned.tile_for(registry.problem(PROBLEM)) == tile(BM=32, WM=8, BK=8)
    assert tuned.tile_for(registry.problem("gemm/m64n48k16/f32/NN")) == tile(BM=64, WM=32, BK=16)
    assert tuned.tile_for(registry.problem("gemm/m128n48k8/f32/NN")) == tile(BM=16, WM=16, BK=4)


def test_without_a_preferred_tile_that_can_be_the_problem_is_refused(tuned, registry):
    refused = tuned.refuses(registry.problem("gemm/m64n48k3/f32/NN"))
    assert refused == "gemm/own.tuned: no tile is valid: 16 is deeper than 3"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("BM=16", tile(BM=16, WM=16, BK=4)),  # as preferred
        ("BK=4,BM=64", tile(BM=64, WM=32, BK=4)),  # the first and the last change in one value: the first
        ("WM=8,BM=64", tile(BM=64, WM=8, BK=8)),  # 16 would be too deep
        ("BM=16,WM=8,BK=8", tile(BM=16, WM=8, BK=8)),
    ],
)
def test_values_that_a_name_leaves_out_are_those_of_the_preferred_tile_it_changes_least(tuned, registry, text, found):
    pinned = registry.kernels[f"gemm/own.tuned@{text}"]
    assert pinned.tile_for(registry.problem(PROBLEM)) == found


def test_a_kernel_with_a_tile_is_named_with_its_values_in_the_declared_order(tuned, registry):
    pinned = registry.kernels["gemm/own.tuned@BK=4,BM=16"]
    assert (pinned.id, pinned.base_id) == ("gemm/own.tuned@BM=16,BK=4", "gemm/own.tuned")
    assert registry.kernels[pinned.id] == pinned
    assert "gemm/own.tuned@BK=4,BM=16" not in registry.kernels


def test_a_kernel_executes_what_it_does_with_its_tile(tuned, registry):
    problem, pinned = registry.problem(PROBLEM), registry.kernels["gemm/own.tuned@BM=64,WM=64,BK=4"]
    assert (tuned.executed_flop(problem), pinned.executed_flop(problem)) == (8 * problem.flop, 4 * problem.flop)


def test_a_tile_that_cannot_be_is_refused_with_its_reason(tuned, registry):
    refused = registry.kernels["gemm/own.tuned@BM=16,WM=64"].refuses(registry.problem(PROBLEM))
    assert refused == f"gemm/own.tuned@BM=16,WM=64: is no tile for {PROBLEM}: WM = 64 does not divide BM = 16"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gemm/own.tuned@BX=1", "gemm/own.tuned@BX=1: BX is unknown, expected one of BK, BM, WM"),
        ("gemm/own.tuned@BM=17", "gemm/own.tuned@BM=17: BM is 17, gemm/own.tuned has 16, 32, 64"),
        ("gemm/numpy.matmul@T=1", "gemm/numpy.matmul@T=1: gemm/numpy.matmul has no tunables; leave the tile out"),
        ("gemm/own.tuned@", "gemm/own.tuned@: expected NAME=VALUE, several separated by commas: T=32"),
        ("gemm/own.tuned@BM", "gemm/own.tuned@BM: expected NAME=VALUE, several separated by commas: T=32"),
        ("gemm/own.tuned@BM=16,BM=32", "gemm/own.tuned@BM=16,BM=32: expected each name once"),
    ],
)
def test_a_name_with_another_tile_is_refused_in_one_line_with_what_there_is(tuned, registry, name, said):
    with pytest.raises(UsageError) as refused:
        registry.named(name)
    assert str(refused.value) == said


@pytest.mark.parametrize("name", ["gemm/own.tunde", "gemm/own.tunde@BM=16"])
def test_a_kernel_that_is_unknown_is_refused_with_one_that_is_near(tuned, registry, name):
    with pytest.raises(UsageError, match=r"'gemm/own.tunde' is unknown, .*did you mean gemm/own.tuned\?$"):
        registry.named(name)


def test_a_value_that_follows_from_the_device_may_be_any_number(registry):
    @cuda_kernel("gemm", source="x.cu", entry="x", tunables={"SMS": (lambda device: device.multiprocessors, 1)})
    def dealt(p, t, device):
        """Dealt."""
        return [KernelCall(grid=t.SMS, block=32, args=())]

    found = registry.kernels["gemm/cuda.dealt"]
    assert [t.SMS for t in found.tiles(TYPICAL[75])] == [40, 1]
    assert found.with_tile({"SMS": 17}).tile_for(registry.problem(PROBLEM)) == tile(SMS=17)


def test_a_value_that_follows_from_the_device_and_is_no_number_is_refused(own):
    with pytest.raises(UsageError, match="a tunable that follows from the device is of list, expected an int"):
        own("odd", tunables={"A": (lambda device: [],)}).values()


@pytest.mark.parametrize("preferred", [{"A": 1}, {"A": 1, "B": 3}, {"A": 1, "B": 2, "C": 3}])
def test_a_preferred_tile_outside_of_the_space_is_refused_when_it_is_declared(own, preferred):
    with pytest.raises(UsageError, match=r"a preferred tile is \{'A'.*, expected one of the values of each tunable"):
        own("odd", tunables={"A": (1, 2), "B": (1, 2)}, prefer=Prefer((preferred,)))


def ids(registry, globs, listed=()):
    entry = Entry(registry.problem(PROBLEM), kernels=listed)
    return [k.id for k in contenders(entry, registry, ("cpu",), globs) if k.provider in ("own", "numpy")]


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        (("gemm/own.*",), ["gemm/own.tuned"]),
        (("gemm/own.*@BM=16",), ["gemm/own.tuned@BM=16"]),
        (("gemm/own.*@BM=16", "gemm/own.*"), ["gemm/own.tuned", "gemm/own.tuned@BM=16"]),
        (("gemm/own.tuned@BK=4,BM=16", "gemm/*.tuned@BM=16,BK=4"), ["gemm/own.tuned@BM=16,BK=4"]),
        (("gemm/own.*@BM=16", "gemm/own.*@BM=32", "!*@BM=16"), ["gemm/own.tuned@BM=32"]),
        (("gemm/own.*@BM=16", "!gemm/own.*"), []),
        (("gemm/numpy.matmul", "gemm/own.*@BM=16"), ["gemm/numpy.matmul", "gemm/own.tuned@BM=16"]),
        (("!gemm/numpy.*", "!gemm/own.tuned"), []),
    ],
)
def test_globs_select_kernels_before_the_at_and_their_tiles_after_it(tuned, registry, globs, found):
    assert ids(registry, globs) == found


def test_a_suite_lists_tiles_as_a_user_does(tuned, registry):
    listed = ("gemm/own.tuned@BM=16", "gemm/own.tuned@BM=32")
    assert ids(registry, (), listed) == list(listed)
    assert ids(registry, ("gemm/own.*",), listed) == list(listed)
    assert ids(registry, ("gemm/own.*@BM=32",), listed) == ["gemm/own.tuned@BM=32"]


def test_each_tile_is_a_case_of_its_own(tuned, registry):
    suite = Suite(name="one", title="one", problem=registry.problem(PROBLEM))
    asked = ("gemm/own.tuned", "gemm/own.tuned@BM=16", "gemm/own.tuned@BM=32")
    (planned,) = jobs([suite], registry, Plan(devices=("cpu",), kernels=asked))
    assert planned.job.kernels == asked
    assert len({case_of(planned.job, PROBLEM, registry.kernels[name]) for name in asked}) == 3


def test_what_is_refused_by_the_first_values_is_not_descended_into():
    asked = []

    def rule(t):
        asked.append(t)
        return "odd" if t.A % 2 else None

    found = list(walk({"A": (1, 2), "B": (1, 2, 3), "C": (1, 2)}, rule))
    assert found[0] == Refused(6, "odd")
    assert found[1:] == [tile(A=2, B=b, C=c) for b in (1, 2, 3) for c in (1, 2)]
    assert len(asked) < 12


@pytest.mark.parametrize(
    "rule",
    [
        lambda t: "large" if sum(vars(t).values()) > 3 else None,
        lambda t: "same" if t == SimpleNamespace(A=2, B=2) else None,
        lambda t: "even" if not t.B % 2 else None,
    ],
)
def test_a_rule_that_a_part_of_a_tile_does_not_decide_is_asked_with_the_whole(rule):
    every = [tile(A=a, B=b) for a in (1, 2) for b in (1, 2)]
    found = [t for t in walk({"A": (1, 2), "B": (1, 2)}, rule) if not isinstance(t, Refused)]
    assert found == [t for t in every if rule(t) is None]


def test_the_tile_of_a_name_is_read_as_it_is_written():
    assert parse_tile("BM=64,BN=32", "x") == {"BM": 64, "BN": 32}
