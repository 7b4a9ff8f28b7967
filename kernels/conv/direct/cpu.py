"""Direct convolution on the CPU."""

from kernelmark import Launch, Prefer, kernel
from kernels.conv.problem import ConvOperands, ConvProblem


#: STEPS: of a sum at a time, a panel's share of a first-level cache of 48 KiB; AT_ONCE: rows of sums that are held.
@kernel(
    "conv",
    provider="numba",
    device="cpu",
    dtypes=("f32",),
    modules=("numba",),
    threaded=True,
    tunables={"STEPS": (32, 64, 128, 256, 512, 1024, 2048, 4096), "AT_ONCE": (16, 32, 64, 128, 256, 512, 1024, 2048)},
    prefer=Prefer(({"STEPS": 256, "AT_ONCE": 1024},)),
)
def direct(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Direct: tiles of sums in vector registers, each step found through tables of offsets; no columns formed."""
    from kernels.conv.direct._stages import stages

    return stages(problem, x)
