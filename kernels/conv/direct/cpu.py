"""Direct convolution on the CPU."""

from kernelmark import Launch, kernel
from kernels.conv.problem import ConvOperands, ConvProblem


@kernel("conv", provider="numba", device="cpu", dtypes=("f32",), modules=("numba",), threaded=True)
def direct(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Direct: tiles of sums in vector registers, each step found through tables of offsets; no columns formed."""
    from kernels.conv.direct._stages import stages

    return stages(problem, x)
