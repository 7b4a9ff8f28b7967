"""What the setups of the corpus are made of: a launch and its right result, operands and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emulator.fixtures import read, written
from kernelmark.bench.emulator.worker import Buffer, EmulatedTensorMap, Launch

Array = np.ndarray[Any, Any]
F32 = np.float32


@dataclass(frozen=True)
class Setup:
    """A launch, and the right result: each output, and the error that it may have."""

    launch: Launch
    buffers: Mapping[str, Buffer]
    want: Mapping[str, Array]
    error: float = 0.0
    constants: Mapping[str, Array] = field(default_factory=dict)


def setup(launch: Launch, inputs: Mapping[str, Array], want: Mapping[str, Array], **others: Buffer) -> Setup:
    """Set a launch up; what is wanted is an output of floats, unless it is among the others."""
    buffers = {name: read(array) for name, array in inputs.items()}
    return Setup(launch, {**buffers, **{name: written(array.size) for name, array in want.items()}, **others}, want)


def given(*shape: int) -> Array:
    """Small multiples of 1/4: sums of a few hundred products are exact in float."""
    return (np.random.default_rng(7).integers(-8, 9, shape) / 4).astype(F32)


def tensor(
    name: str, rows: int, cols: int, box: tuple[int, int], itemsize: int = 4, swizzle: int = 0
) -> EmulatedTensorMap:
    return EmulatedTensorMap(name, (cols, rows, 1), (cols * itemsize, rows * cols * itemsize), box, itemsize, swizzle)


def zeros(count: int, dtype: Any = F32) -> Buffer:
    return Buffer("inout", np.zeros(count, dtype))
