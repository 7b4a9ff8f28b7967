"""A copy on a GPU by the CUDA runtime."""

from kernelmark import Launch, kernel
from kernelmark.kernels.copy.problem import CopyOperands, CopyProblem


@kernel("copy", provider="cuda", device="cuda", numerics="exact", modules=("cupy",))
def memcpy(problem: CopyProblem, x: CopyOperands) -> Launch:
    """Asynchronous cudaMemcpy from device to device, on the measured stream."""
    from cupy.cuda import runtime

    target, source, nbytes, stream = x.b.data.ptr, x.a.data.ptr, x.a.nbytes, x.stream.ptr
    return lambda: runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDeviceToDevice, stream)
