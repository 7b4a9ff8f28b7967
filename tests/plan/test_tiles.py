"""Tiles: written, chosen, refused, selected by globs, and the space of a kernel's tiles."""

import tracemalloc
from collections import Counter
from types import SimpleNamespace

import pytest

from kernelmark.bench.plan import space as spaces
from kernelmark.bench.plan.case import contenders
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.kernel import KernelCall, Prefer
from kernelmark.bench.plan.limits import TYPICAL
from kernelmark.bench.plan.registry import cuda_kernel
from kernelmark.bench.plan.space import Space
from kernelmark.bench.plan.sweep import Entry
from kernelmark.bench.plan.tiles import Refused, walk

PROBLEM = "gemm/m64n48k8/f32/NN"


@pytest.fixture
def tuned(dummy):
    """A kernel whose tiles are refused for several reasons, and preferred in an order that is not the space's."""

    def valid(p, t, device):
        if t.BM % t.WM:
            return f"WM = {t.WM} does not divide BM = {t.BM}"
        return f"{t.BK} is deeper than {p.k}" if p.k < t.BK else None

    return dummy(
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


def test_the_default_is_the_first_preferred_tile_that_is_valid_and_not_excepted(tuned, registry):
    assert tuned.tile_for(registry.problem(PROBLEM)) == tile(BM=32, WM=8, BK=8)
    assert tuned.tile_for(registry.problem("gemm/m64n48k16/f32/NN")) == tile(BM=64, WM=32, BK=16)
    assert tuned.tile_for(registry.problem("gemm/m128n48k8/f32/NN")) == tile(BM=16, WM=16, BK=4)
    refused = tuned.refuses(registry.problem("gemm/m64n48k3/f32/NN"))
    assert refused == "gemm/own.tuned: no tile is valid: 16 is deeper than 3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BM=16", tile(BM=16, WM=16, BK=4)),  # a preferred tile
        ("BK=4,BM=64", tile(BM=64, WM=32, BK=4)),  # the first and last preferred tile change in one value
        ("WM=8,BM=64", tile(BM=64, WM=8, BK=8)),  # BK = 16 would be too deep
        ("BM=16,WM=8,BK=8", tile(BM=16, WM=8, BK=8)),
    ],
)
def test_values_left_out_of_a_name_come_from_the_preferred_tile_that_changes_least(tuned, registry, text, expected):
    pinned = registry.kernels[f"gemm/own.tuned@{text}"]
    assert pinned.tile_for(registry.problem(PROBLEM)) == expected


def test_a_kernel_with_a_tile_is_named_with_its_values_in_the_declared_order(tuned, registry):
    pinned = registry.kernels["gemm/own.tuned@BK=4,BM=16"]
    assert (pinned.id, pinned.base_id) == ("gemm/own.tuned@BM=16,BK=4", "gemm/own.tuned")
    assert registry.kernels[pinned.id] == pinned
    assert "gemm/own.tuned@BK=4,BM=16" not in registry.kernels


def test_executed_operations_depend_on_the_tile_and_an_invalid_tile_is_refused(tuned, registry):
    problem, pinned = registry.problem(PROBLEM), registry.kernels["gemm/own.tuned@BM=64,WM=64,BK=4"]
    assert (tuned.executed_flop(problem), pinned.executed_flop(problem)) == (8 * problem.flop, 4 * problem.flop)
    refused = registry.kernels["gemm/own.tuned@BM=16,WM=64"].refuses(problem)
    assert refused == f"gemm/own.tuned@BM=16,WM=64: is not valid for {PROBLEM}: WM = 64 does not divide BM = 16"


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("gemm/own.tuned@BX=1", "gemm/own.tuned@BX=1: BX is unknown, expected one of BK, BM, WM"),
        ("gemm/own.tuned@BM=17", "gemm/own.tuned@BM=17: BM is 17, expected one of 16, 32, 64"),
        ("gemm/numpy.matmul@T=1", "gemm/numpy.matmul@T=1: gemm/numpy.matmul has no tunables; leave the tile out"),
        ("gemm/own.tuned@", "gemm/own.tuned@: expected NAME=VALUE pairs separated by commas, such as T=32"),
        ("gemm/own.tuned@BM", "gemm/own.tuned@BM: expected NAME=VALUE pairs separated by commas, such as T=32"),
        ("gemm/own.tuned@BM=16,BM=32", "gemm/own.tuned@BM=16,BM=32: expected each name once"),
    ],
)
def test_a_name_with_a_bad_tile_is_refused_in_one_line_with_what_is_expected(tuned, registry, name, refusal):
    with pytest.raises(UsageError) as refused:
        registry.named(name)
    assert str(refused.value) == refusal


def test_a_tunable_computed_from_the_device_takes_any_int_and_nothing_else(dummy, registry):
    @cuda_kernel("gemm", source="x.cu", entry="x", tunables={"SMS": (lambda device: device.multiprocessors, 1)})
    def dealt(p, t, device):
        """Dealt."""
        return [KernelCall(grid=t.SMS, block=32, args=())]

    dealt_kernel = registry.kernels["gemm/cuda.dealt"]
    assert [t.SMS for t in dealt_kernel.tiles(TYPICAL[75])] == [40, 1]
    assert dealt_kernel.with_tile({"SMS": 17}).tile_for(registry.problem(PROBLEM)) == tile(SMS=17)
    with pytest.raises(UsageError, match="a tunable computed from the device is a list, expected an int"):
        dummy("odd", tunables={"A": (lambda device: [],)}).values()


@pytest.mark.parametrize("preferred", [{"A": 1}, {"A": 1, "B": 3}, {"A": 1, "B": 2, "C": 3}])
def test_a_preferred_tile_outside_of_the_space_is_refused_when_it_is_declared(dummy, preferred):
    with pytest.raises(UsageError, match=r"a preferred tile is \{'A'.*, expected one of the values of each tunable"):
        dummy("odd", tunables={"A": (1, 2), "B": (1, 2)}, prefer=Prefer((preferred,)))


def ids(registry, globs, listed=()):
    entry = Entry(registry.problem(PROBLEM), kernels=listed)
    return [k.id for k in contenders(entry, registry, ("cpu",), globs) if k.provider in ("own", "numpy")]


@pytest.mark.parametrize(
    ("globs", "selected"),
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
def test_globs_select_kernels_before_the_at_sign_and_tiles_after_it(tuned, registry, globs, selected):
    assert ids(registry, globs) == selected


@pytest.mark.parametrize(("globs", "selected"), [((), (16, 32)), (("gemm/own.*",), (16, 32)), (("*@BM=32",), (32,))])
def test_a_suite_lists_tiles_as_a_user_does(tuned, registry, globs, selected):
    listed = ("gemm/own.tuned@BM=16", "gemm/own.tuned@BM=32")
    assert ids(registry, globs, listed) == [f"gemm/own.tuned@BM={rows}" for rows in selected]


def test_tiles_refused_by_their_first_values_are_not_walked():
    partial_tiles = []

    def rule(t):
        partial_tiles.append(t)
        return "odd" if t.A % 2 else None

    steps = list(walk({"A": (1, 2), "B": (1, 2, 3), "C": (1, 2)}, rule))
    assert steps[0] == Refused(6, "odd")
    assert steps[1:] == [tile(A=2, B=b, C=c) for b in (1, 2, 3) for c in (1, 2)]
    assert len(partial_tiles) < 12


@pytest.mark.parametrize(
    "rule",
    [
        lambda t: "large" if sum(vars(t).values()) > 3 else None,
        lambda t: "same" if t == SimpleNamespace(A=2, B=2) else None,
        lambda t: "even" if not t.B % 2 else None,
    ],
)
def test_a_rule_that_a_partial_tile_does_not_decide_is_applied_to_whole_tiles(rule):
    every = [tile(A=a, B=b) for a in (1, 2) for b in (1, 2)]
    tiles = [t for t in walk({"A": (1, 2), "B": (1, 2)}, rule) if not isinstance(t, Refused)]
    assert tiles == [t for t in every if rule(t) is None]


@pytest.mark.parametrize(
    ("name", "glob", "is_match"),
    [
        ("gemm/own.tuned@BM=16", "gemm/own.tuned", True),
        ("gemm/own.tuned@BM=16", "*.tuned@BM=*", True),
        ("gemm/own.tuned@BM=16", "*@BM=32", False),
        ("gemm/own.tuned", "gemm/own.tuned@*", False),
    ],
)
def test_a_glob_without_a_tile_matches_rows_of_every_tile(name, glob, is_match):
    assert matches(name, (glob,)) is is_match


SMALL = "gemm/m8n8k8/f32/NN"
VALUES = {"A": (1, 2, 3, 4), "B": (1, 2, 3, 4), "C": (5, 6)}


def valid(p, t, device):
    """Return a reason unless A + B is 4."""
    return f"{t.A} and {t.B} are not 4" if t.A + t.B != 4 else None


@pytest.fixture
def space(dummy, registry):
    return Space(dummy("coupled", tunables=VALUES, valid=valid), registry.problem(SMALL))


def as_tuple(tile):
    return tuple(vars(tile).values())


EVERY = {(a, 4 - a, c) for a in (1, 2, 3) for c in (5, 6)}


def test_a_space_has_the_valid_tiles_of_the_product_and_counts_the_others_by_reason(space):
    assert space.size == 32
    assert {as_tuple(tile) for tile in space.valid()} == EVERY
    counts = space.count()
    assert (counts.size, counts.valid, counts.exact) == (32, 6, True)
    assert counts.refused == {"1 and 1 are not 4": 26}


def test_the_count_of_a_large_space_is_estimated_from_drawn_tiles(space, monkeypatch):
    monkeypatch.setattr(spaces, "LOOKS", 3)
    counts = space.count()
    assert not counts.exact
    assert counts.size == 32
    assert counts.valid + sum(counts.refused.values()) == pytest.approx(32, abs=2)
    assert 4 <= counts.valid <= 8


@pytest.mark.parametrize("looks", [spaces.LOOKS, 3])
def test_a_sample_has_different_valid_tiles_and_is_the_same_for_a_seed(space, monkeypatch, looks):
    monkeypatch.setattr(spaces, "LOOKS", looks)
    drawn = space.sample(4, seed=7)
    assert drawn == space.sample(4, seed=7)
    assert len({as_tuple(tile) for tile in drawn}) == 4
    assert {as_tuple(tile) for tile in drawn} <= EVERY
    assert {as_tuple(tile) for tile in space.sample(100, seed=0)} == EVERY


def test_samples_of_several_seeds_reach_every_tile_about_as_often(space):
    seen = Counter(as_tuple(tile) for seed in range(600) for tile in space.sample(1, seed))
    assert set(seen) == EVERY
    assert max(seen.values()) < 2 * min(seen.values())


def test_neighbours_differ_in_one_value_or_in_two_that_cannot_change_alone(space):
    neighbours = {as_tuple(tile) for tile in space.neighbours(SimpleNamespace(A=2, B=2, C=5))}
    assert neighbours == {(2, 2, 6), (1, 3, 5), (3, 1, 5)}


@pytest.mark.usefixtures("space")
def test_a_pinned_value_restricts_the_space_and_a_kernel_without_tunables_has_one_tile(registry):
    pinned = Space(registry.kernels["gemm/own.coupled@A=1"], registry.problem(SMALL))
    assert {as_tuple(tile) for tile in pinned.valid()} == {(1, 3, 5), (1, 3, 6)}
    single = Space(registry.kernels["gemm/numpy.matmul"], registry.problem(SMALL))
    assert (single.size, single.count().valid, list(single.valid())) == (1, 1, [SimpleNamespace()])


@pytest.mark.parametrize(
    "valid",
    [
        lambda p, t, d: None,
        lambda p, t, d: "not rising" if t.A >= t.B or t.B >= t.C or t.C >= t.D or t.D >= t.E else None,
        lambda p, t, d: f"{t.I} is not the sum" if sum(vars(t).values()) % 10 != t.I else None,
    ],
)
def test_a_space_of_a_billion_tiles_takes_little_memory(dummy, registry, valid):
    giant = dummy("giant", tunables={name: tuple(range(10)) for name in "ABCDEFGHI"}, valid=valid)
    problem = registry.problem(SMALL)
    tracemalloc.start()
    space = Space(giant, problem)
    assert giant.refuses(problem) is None
    assert space.size == 10**9
    assert space.count().valid > 0
    drawn = space.sample(20, seed=1)
    assert len(drawn) == 20
    assert all(space.why_not(t) is None for t in [*drawn, *space.neighbours(drawn[0])])
    assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    tracemalloc.stop()
