"""The space of a kernel's tiles: counted, drawn from, and walked from tile to tile."""

import tracemalloc
from collections import Counter
from types import SimpleNamespace

import pytest

from kernelmark.bench.plan import space as spaces
from kernelmark.bench.plan.space import Space

PROBLEM = "gemm/m8n8k8/f32/NN"
VALUES = {"A": (1, 2, 3, 4), "B": (1, 2, 3, 4), "C": (5, 6)}


def valid(p, t, device):
    """A and B have to be 4 together."""
    return f"{t.A} and {t.B} are not 4" if t.A + t.B != 4 else None


@pytest.fixture
def space(own, registry):
    return Space(own("coupled", tunables=VALUES, valid=valid), registry.problem(PROBLEM))


def as_tuple(tile):
    return tuple(vars(tile).values())


EVERY = {(a, 4 - a, c) for a in (1, 2, 3) for c in (5, 6)}


def test_a_space_has_the_valid_tiles_of_the_product(space):
    assert space.size == 32
    assert {as_tuple(tile) for tile in space.valid()} == EVERY


def test_a_count_has_every_tile_that_is_refused_under_a_reason_of_its_kind(space):
    found = space.count()
    assert (found.size, found.valid, found.exact) == (32, 6, True)
    assert found.refused == {"1 and 1 are not 4": 26}


def test_a_space_that_takes_long_is_estimated_by_tiles_that_are_drawn(space, monkeypatch):
    monkeypatch.setattr(spaces, "LOOKS", 3)
    found = space.count()
    assert not found.exact
    assert found.size == 32
    assert found.valid + sum(found.refused.values()) == pytest.approx(32, abs=2)
    assert 4 <= found.valid <= 8


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


def test_neighbours_differ_in_one_value_or_in_two_that_only_go_together(space):
    found = {as_tuple(tile) for tile in space.neighbours(SimpleNamespace(A=2, B=2, C=5))}
    assert found == {(2, 2, 6), (1, 3, 5), (3, 1, 5)}


def test_a_kernel_with_a_tile_of_its_own_has_only_tiles_of_its_values(registry, space):
    pinned = Space(registry.kernels["gemm/own.coupled@A=1"], registry.problem(PROBLEM))
    assert {as_tuple(tile) for tile in pinned.valid()} == {(1, 3, 5), (1, 3, 6)}


def test_a_kernel_without_tunables_has_one_tile(registry):
    one = Space(registry.kernels["gemm/numpy.matmul"], registry.problem(PROBLEM))
    assert (one.size, one.count().valid, list(one.valid())) == (1, 1, [SimpleNamespace()])


@pytest.mark.parametrize(
    "valid",
    [
        lambda p, t, d: None,
        lambda p, t, d: "not rising" if t.A >= t.B or t.B >= t.C or t.C >= t.D or t.D >= t.E else None,
        lambda p, t, d: f"{t.I} is not the sum" if sum(vars(t).values()) % 10 != t.I else None,
    ],
)
def test_a_space_of_a_thousand_million_tiles_takes_little_memory_for_any_question(own, registry, valid):
    giant = own("giant", tunables={name: tuple(range(10)) for name in "ABCDEFGHI"}, valid=valid)
    problem = registry.problem(PROBLEM)
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
