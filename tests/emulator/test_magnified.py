"""Convolutions of more than 2^32 elements: strides and dilations are so large that almost nothing of an image is read.

A convolution without padding is magnified: it reads the same pixels, which lie FACTOR rows and columns apart.
"""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from emulator.overflows import Overflow
from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import unwaived
from kernelmark.bench.emulator.sweep import EmulatedCase, entries, launches
from kernelmark.bench.emulator.worker import Array, Buffer, run
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import numpy_dtype
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Problem
from support.emulated import program_entries

#: Images of which a tile meets less than 2^31 elements, as the kernels require, and which together have more than 2^32.
FACTOR = 800
KERNELS = (
    ("conv/cuda.direct", "conv/n16c8h9w9k8r2s2/f32/nchw/fprop"),
    ("conv/cuda.direct", "conv/n16c8h9w9k8r2s2/f32/nhwc/wgrad"),
    ("conv/cuda.depthwise", "conv/n16c8h9w9k8r2s2/f32/nchw/wgrad/g8"),
    ("conv/cuda.depthwise", "conv/n16c8h9w9k8r2s2/f32/nhwc/wgrad/g8"),
    ("conv/cuda.im2col", "conv/n16c8h9w9k8r2s2/f32/nchw/wgrad"),
    ("conv/cuda.im2col", "conv/n16c8h9w9k8r2s2/f32/nhwc/fprop"),
    ("conv/cuda.implicit", "conv/n16c8h9w9k8r2s2/f32/nchw/fprop"),
    ("conv/cuda.implicit", "conv/n16c8h9w9k8r2s2/f32/nhwc/fprop"),
    ("conv/cuda.implicit_mma", "conv/n16c8h9w9k8r2s2/f16/nhwc/fprop"),
)


def _magnified(problem: Problem) -> Problem:
    sides = {side: (getattr(problem, side) - 1) * FACTOR + 1 for side in ("h", "w")}
    return msgspec.structs.replace(problem, **sides, stride=FACTOR, dilation=FACTOR)


def _pixels(data: Array, shape: tuple[int, ...], layout: str) -> Buffer:
    """Return the large x: its pixels, in nchw the elements of each, at their places."""
    *axes, size = data.shape if layout == "nhwc" else (*data.shape, 1)
    steps = (1, FACTOR, FACTOR) if layout == "nhwc" else (1, 1, FACTOR, FACTOR)
    at = np.ravel_multi_index(np.indices(axes) * np.reshape(steps, (-1, *[1] * len(axes))), shape[: len(axes)])
    return Buffer("in", data.ravel(), 0, 0, tuple((at.ravel() * size * data.itemsize).tolist()))


def _faults(kernel_id: str, problem_id: str, cuda: Path = CUDA) -> list[str]:
    kernel, problem = discover().kernels[kernel_id], discover().problem(problem_id)
    assert isinstance(kernel, CudaKernel)
    large = _magnified(problem)
    (x,) = (operand for operand in large.operands() if operand.name == "x")
    assert not kernel.refuses(large)
    assert x.elements > 2**32
    rng = np.random.default_rng(1)
    values = {o.name: rng.uniform(-1, 1, o.shape).astype(numpy_dtype(o.dtype)) for o in problem.operands()}
    buffers = {o.name: Buffer(o.role, values[o.name].ravel()) for o in problem.operands()}
    buffers["x"] = _pixels(values["x"], x.shape, problem.layout)
    reference = problem.reference(values, rng)
    tile = kernel.tile_for(large, H100)
    assert tile is not None
    case = EmulatedCase(kernel, large, tile)
    planned = list(launches(case, buffers))
    names = program_entries([case]) if cuda == CUDA else entries([case])
    worker = program(cuda / kernel.source, names, include=cuda)
    (outcome,) = run(worker, buffers, planned, orders=("forward",))
    (output,) = (operand for operand in problem.operands() if operand.role == "out")
    outputs = {output.name: outcome.outputs[output.name].reshape(output.shape)}
    wrong = problem.check(outputs, reference, kernel.numerics_for(problem)).reason
    return [*map(str, unwaived(outcome.reports)), *filter(None, [wrong])]


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [pytest.param(*named, marks=pytest.mark.long if i else ()) for i, named in enumerate(KERNELS)],
)
def test_convolution_of_large_images_is_right(kernel: str, problem: str) -> None:
    assert not _faults(kernel, problem)


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "planted"),
    [
        (0, Overflow("conv/geometry.cuh", "((size_t(a) * channels + b)", "((a * channels + b)", "conv/direct.cu")),
        (
            6,
            Overflow(
                "conv/implicit_feed.cuh",
                "static_cast<long long>(first) * map.image.image()",
                "int(first) * map.image.image()",
                "conv/implicit.cu",
            ),
        ),
    ],
)
def test_overflow_in_a_convolution_of_large_images_is_found(place: int, planted: Overflow) -> None:
    assert _faults(*KERNELS[place], planted.folder())
