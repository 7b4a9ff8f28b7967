"""Barriers that reduce, 3-D geometry, the kinds of memory, vector types, and barriers of the whole grid."""

import numpy as np

from emulator.fixtures import intrinsic, read, written
from kernelmark.bench.emulator.worker import Buffer, Launch


def test_barriers_count_and_combine_predicates() -> None:
    x = np.arange(-40, 56, dtype=np.int32)
    launch = Launch("reducing_barriers", 1, 96, ("x", "out"))
    out = intrinsic("block.cu", launch, {"x": read(x), "out": written(3 * 96, np.int32)})["out"].reshape(3, 96)
    assert (out[0] == (x > 0).sum()).all()
    assert (out[1] == 1).all()
    assert (out[2] == 1).all()


def test_blocks_and_grids_have_three_dimensions() -> None:
    launch = Launch("geometry", (3, 2, 4), (5, 3, 2), ("out",))
    out = intrinsic("block.cu", launch, {"out": written(24 * 30, np.int32)})["out"]
    bz, by, bx, tz, ty, tx = np.indices((4, 2, 3, 2, 3, 5))
    want = tx + 10 * ty + 100 * tz + 1000 * bx + 10000 * by + 100000 * bz
    assert np.array_equal(out, want.ravel())


def test_static_dynamic_and_constant_memory_hold_what_was_put_there() -> None:
    x, factors = np.arange(48, dtype=np.float64), np.array([1, 2, 3, 4], np.float32)
    launch = Launch("memories<double, 48>", 1, 48, ("x", "out"), shared_bytes=48 * 8)
    buffers = {"x": read(x), "out": written(48, np.float64)}
    out = intrinsic("block.cu", launch, buffers, constants={"factors": factors})["out"]
    want = (x * np.resize(factors, 48))[::-1] + np.resize([10, 20, 30, 40], 48)
    assert np.array_equal(out, want)


def test_vector_types_have_the_layout_of_their_elements() -> None:
    x, y = np.arange(32, dtype=np.float32).reshape(8, 4), np.arange(16, dtype=np.float32).reshape(8, 2)
    launch = Launch("vectors", 1, 8, ("x", "y", "out"))
    out = intrinsic("block.cu", launch, {"x": read(x), "y": read(y), "out": written(32)})["out"].reshape(8, 4)
    assert np.array_equal(out, x + np.pad(y, ((0, 0), (0, 2))))


def test_grid_barrier_keeps_shared_memory_and_registers_of_every_block() -> None:
    x = np.arange(1, 6, dtype=np.int32)
    launch = Launch("ring", 5, 64, ("x", "cells", "out", 3), cooperative=True)
    buffers = {"x": read(x), "cells": Buffer("scratch", np.zeros(5, np.int32)), "out": written(5 * 64, np.int32)}
    out = intrinsic("block.cu", launch, buffers)["out"].reshape(5, 64)
    assert np.array_equal(out, np.repeat((np.roll(x, -3) * 100 + x)[:, None], 64, axis=1))
