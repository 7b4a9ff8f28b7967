"""What the setups of the corpus are made of: a launch and its right result, operands and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.emulator.worker import Buffer, Launch, TensorMap

Array = np.ndarray[Any, Any]
F32 = np.float32


@dataclass(frozen=True)
class Setup:
    """Launches of one kernel, and the right result: each output with the error it may have."""

    entry: str
    buffers: Mapping[str, Buffer]
    launch: Launch
    want: Mapping[str, tuple[Array, float]]
    constants: Mapping[str, Array] = field(default_factory=dict)


def given(*shape: int) -> Array:
    """Small multiples of 1/4: sums of a few hundred products are exact in float."""
    return (np.random.default_rng(7).integers(-8, 9, shape) / 4).astype(F32)


def operand(array: Array) -> Buffer:
    return Buffer("in", array.ravel())


def tensor(name: str, rows: int, cols: int, box: tuple[int, int], itemsize: int = 4, swizzle: int = 0) -> TensorMap:
    return TensorMap(name, (cols, rows, 1), (cols * itemsize, rows * cols * itemsize), box, itemsize, swizzle)


def output(count: int, dtype: Any = F32) -> Buffer:
    return Buffer("out", np.frombuffer(b"\xff" * (count * np.dtype(dtype).itemsize), dtype).copy())


def zeros(count: int, dtype: Any = F32) -> Buffer:
    return Buffer("inout", np.zeros(count, dtype))
