"""Our kernels that have tunables, and the problem under which the space of each is looked at."""

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.operation import Problem

REGISTRY = discover()
OURS = {k.id: k for k in REGISTRY.kernels.values() if k.is_ours and k.tunables}
CUDA = {name: kernel for name, kernel in OURS.items() if isinstance(kernel, CudaKernel)}
CPU = {name: kernel for name, kernel in OURS.items() if kernel.device == "cpu"}
#: A problem of each kernel for which its space is what it is meant for; for the others one of their operation.
TYPICAL_OF = {
    "gemm": "gemm/m4096n4096k4096/{dtype}/NN",
    "gemm/cuda.wgmma_tf32": "gemm/m4096n4096k4096/f32/NT",
    "gemm/cuda.wgmma_tf32_turned": "gemm/m4096n4096k4096/f32/TN",
    "gemm/cuda.wgmma_3xtf32": "gemm/m4096n4096k4096/f32/NT",
    "gemm/cuda.wgmma_fp8": "gemm/m4096n4096k4096/{dtype}/NT",
    "gemm/cuda.wgmma_int8": "gemm/m4096n4096k4096/{dtype}/NT",
    "gemm/cuda.mma_int8": "gemm/m4096n4096k4096/{dtype}/NT",
    "gemm/cuda.wgmma_fp8_blocks": "gemm/m4096n4096k4096/{dtype}/NT/scale-blocks",
    "gemm/cuda.wgmma_grouped": "gemm/m8192n4096k4096/{dtype}/NT/groups8-skewed",
    "gemm/cuda.async_fused": "gemm/m4096n4096k4096/f32/NN/epi-bias-relu",
    "gemm/cuda.async_two_step": "gemm/m4096n4096k4096/f32/NN/epi-bias-relu",
    "gemm/cuda.batched": "gemm/m32n32k32/f32/NN/batch4096",
    "gemm/cuda.skinny": "gemm/m16n4096k4096/{dtype}/NT",
    "transpose": "transpose/m2048n26752/f32/out",
    "transpose/numba.tiles": "transpose/m2048n26752/f32/in",
    "transpose/cuda.tiled_inplace": "transpose/m4096n4096/f32/in",
    "transpose/cuda.c2r": "transpose/m2048n26752/f32/in",
    "transpose/cuda.c2r_fused": "transpose/m2048n26752/f32/in",
    "copy": "copy/m2048n26752/f32",
    "aggregate": "aggregate/w4n51200000/f32",
    "aggregate/cuda.onebit": "aggregate/w4n51200000/f32/ef",
    "aggregate/cuda.int8": "aggregate/w4n51200000/f32/ef",
    "transfer": "transfer/n51200000/f32/h2d",
    "transfer/cuda.arrived": "transfer/n51200000/f32/d2d/work64",
    "conv": "conv/n8c256h56w56k256r3s3pad1/{dtype}/{layout}/fprop",
    "conv/cuda.depthwise": "conv/n8c256h56w56k256r3s3pad1/f32/nchw/fprop/g256",
    "conv/cuda.fft_fused": "conv/n128c3h128w128k96r11s11/f32/nchw/fprop",
}


def typical(kernel: Kernel) -> Problem:
    """The problem under which a kernel's space is counted."""
    axes = {"dtype": "f32", "layout": "nchw"} | {axis: str(values[0]) for axis, values in kernel.domain.items()}
    return REGISTRY.problem(TYPICAL_OF.get(kernel.id, TYPICAL_OF[kernel.op]).format(**axes))
