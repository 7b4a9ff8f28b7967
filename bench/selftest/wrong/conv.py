"""Wrong convolutions: exchanged filters and images, forgotten taps, padding that is not 0."""

import numpy as np

from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.operands import Operands, OperandSet, ScratchBuffers
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import REGISTRY
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong, float64, nearest, put, scale, swap

FPROP, DGRAD, WGRAD = (f"conv/n8c128h28w28k192r3s3pad1/f32/nchw/{name}" for name in ("fprop", "dgrad", "wgrad"))
HOLLOW = "conv/n64c64h7w7k64r1s1pad12/f32/nchw/fprop"
STRIDED = "conv/n32c64h28w28k64r1s1stride4/f32/nchw/dgrad"
SMALL = "conv/n2c3h9w8k5r3s3pad1/f32/nhwc/fprop"
#: The kernel that computes right results, since the operation's reference computes only parts of large results.
KERNEL = "conv/cpu.im2col"


def exact(problem: Problem, inputs: Inputs) -> Array:
    """Return the result in single precision."""
    device = get_device("cpu")
    operands = OperandSet(problem, device)
    for name, values in inputs.items():
        operands.flat[name][:] = values.reshape(-1)
    scratch = ScratchBuffers(device)  # held until the launch has used it
    REGISTRY.kernels[KERNEL].launch(problem, Operands(operands, "C", device, 1, scratch))()
    (output,) = operands.outputs("C").values()
    return output.astype(np.float64)


def without_first_tap(y: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """Leave out the first tap of the last filter in the last column, as if it were in the padding."""
    x, w = float64(inputs, "x", "w")
    y[:, -1, 1:, -1] -= np.tensordot(x[:, :, :-1, -2], w[-1, :, 0, 0], (1, 0))


def last_channel_left_out(y: Array, inputs: Inputs, rng: "np.random.Generator") -> None:
    """Leave out the middle tap of the last channel in one filter."""
    k = int(rng.integers(y.shape[1]))
    y[:, k] -= inputs["x"][:, -1].astype(np.float64) * inputs["w"][k, -1, 1, 1]


def rounded_operands(bits: int) -> Spoil:
    """Return a function that rounds the operands to `bits` bits."""
    return lambda _y, inputs, _rng: exact(
        REGISTRY.problem(FPROP), {name: nearest(bits)(x).astype(x.dtype) for name, x in inputs.items()}
    )


CONV = Family(
    exact,
    (
        Wrong("two filters exchanged", FPROP, swap(1)),
        Wrong("two images exchanged", FPROP, swap(0)),
        Wrong("two rows exchanged", FPROP, swap(2)),
        Wrong("a tap missing at the border", FPROP, without_first_tap),
        Wrong("a channel missing in one filter", FPROP, last_channel_left_out),
        Wrong("an image not written", FPROP, put(np.nan, None)),
        Wrong("an element set to 0", FPROP, put(0.0, None, None, None, None)),
        Wrong("a filter larger by a thousandth", FPROP, scale(1.001, slice(None), None)),
        Wrong("operands of 8 bits (BF16)", FPROP, rounded_operands(8), "tf32"),
        Wrong("operands of 11 bits (TF32)", FPROP, rounded_operands(11), "fp32"),
        Wrong("operands of 15 bits", FPROP, rounded_operands(15), "winograd4"),
        Wrong("operands of 17 bits", FPROP, rounded_operands(17), "winograd"),
        Wrong("operands of 16 bits", FPROP, rounded_operands(16), "fft"),
        Wrong("two channels exchanged", DGRAD, swap(1)),
        Wrong("two columns exchanged", DGRAD, swap(3)),
        Wrong("two filters exchanged", WGRAD, swap(0)),
        Wrong("two channels exchanged", WGRAD, swap(1)),
        Wrong("two taps exchanged", WGRAD, swap(3)),
        Wrong("padding that is not 0", HOLLOW, put(1e-6, None, None, 3, 3)),
        Wrong("an element set to 0 amid padding", HOLLOW, put(0.0, None, None, 15, 15)),
        Wrong("a pixel between strides that is not 0", STRIDED, put(1e-6, None, None, 1, 4)),
        Wrong("two filters exchanged", SMALL, swap(3)),
    ),
)
