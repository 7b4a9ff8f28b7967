"""Compiles every CUDA kernel with the compiler of the environment that runs this, for one problem each."""

from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.measure.compilers import compiler
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.tune.inspect import sample_problem

ARCH = "sm_90a"


def main() -> None:
    """Compile; raises CompileError where the environment lacks something that a kernel needs."""
    registry = discover()
    kernels = [kernel for kernel in registry.kernels.values() if isinstance(kernel, CudaKernel)]
    for kernel in kernels:
        problem = sample_problem(kernel, registry.problem_class(kernel.op, kernel.id))
        tile = kernel.tile_for(problem)
        assert tile is not None, f"{kernel.id} takes {problem.id}, so it has a tile for it"
        compile_cubin(kernel.source, tuple(dict(kernel.calls(problem, tile))), ARCH, kernel.id)
    print(f"{len(kernels)} kernels compile for {ARCH} by {compiler()}")


main()
