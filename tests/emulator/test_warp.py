"""Shuffles, votes, warp reductions and atomics against NumPy."""

import numpy as np

from emulator.fixtures import intrinsic, read, written
from kernelmark.bench.emulator.worker import Buffer, Launch

LANES = np.arange(32)
X = np.random.default_rng(1).integers(-99, 100, 32).astype(np.int32)


def test_shuffles_move_lanes_within_their_segments() -> None:
    buffers = {"x": read(X), "out": written(8 * 32, np.int32)}
    out = intrinsic("warp.cu", Launch("shuffles", 1, 32, ("x", "out")), buffers)["out"].reshape(8, 32)
    segment = LANES // 8 * 8
    sources = [
        np.full(32, 5),
        segment + (LANES + 3) % 8,
        np.where(LANES >= 3, LANES - 3, LANES),
        np.where(LANES + 3 < 32, LANES + 3, LANES),
        LANES ^ 9,
        np.where(LANES % 8 >= 2, LANES - 2, LANES),
        np.where(LANES % 8 + 2 < 8, LANES + 2, LANES),
        LANES ^ 16,
    ]
    assert np.array_equal(out, X[np.array(sources)])


def test_votes_and_reductions_see_every_lane_of_the_mask() -> None:
    out = intrinsic("warp.cu", Launch("votes", 1, 32, ("x", "out")), {"x": read(X), "out": written(9 * 32, np.uint32)})
    got = out["out"].reshape(9, 32)
    remainder = np.fmod(X, 4)
    match = [(1 << np.flatnonzero(remainder == r)).sum() for r in remainder]
    low = np.where(LANES < 16, (1 << np.flatnonzero(X[:16] > 0)).sum(), 0)
    want = [
        (1 << np.flatnonzero(X > 0)).sum(),
        int((X > 90).any()),
        1,
        match,
        X.sum(),
        X.min(),
        X.max(),
        np.bitwise_xor.reduce(X),
        low,
    ]
    for row, expected in zip(got, want, strict=True):
        assert np.array_equal(row, np.broadcast_to(expected, 32).astype(np.int64).astype(np.uint32))


def test_atomics_lose_no_update_between_blocks() -> None:
    cells = np.zeros(40, np.int32)
    cells[4] = 0xFF
    buffers = {"cells": Buffer("inout", cells), "wrapped": Buffer("inout", np.zeros(2, np.uint32))}
    out = intrinsic("warp.cu", Launch("atomics", 1, 32, ("cells", "wrapped")), buffers)
    total = LANES.sum()
    want = [total, -total, -31, 31, 0, 0xFF, 3, 77, *[1] * 32]
    assert out["cells"].tolist() == want
    assert out["wrapped"].tolist() == [32 % 10, (-32) % 10]


def test_funnel_shifts_move_at_most_32_bits() -> None:
    low, high = np.random.default_rng(2).integers(0, 2**32, (2, 64), np.uint64)
    buffers = {"low": read(low.astype(np.uint32)), "high": read(high.astype(np.uint32)), "out": written(128, np.uint32)}
    out = intrinsic("warp.cu", Launch("funnel_shifts", 1, 64, ("low", "high", "out")), buffers)["out"].reshape(2, 64)
    by = np.minimum(np.arange(64, dtype=np.uint64) - np.uint64(1), 32).astype(np.uint64)
    both = high << np.uint64(32) | low
    assert np.array_equal(out[0], (both << by >> np.uint64(32)).astype(np.uint32))
    assert np.array_equal(out[1], (both >> by).astype(np.uint32))
