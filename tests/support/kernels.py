"""Helpers for tests of kernels: run a kernel given its id, with any of its tiles, on fresh operands."""

import fcntl
import re
import tracemalloc
from collections import namedtuple
from contextlib import contextmanager

import numpy as np
import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import Operands, ScratchBuffers, loaded
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.files import cache_folder
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.job import run_job

REGISTRY = discover()
CUDA = {kernel.id: kernel for kernel in REGISTRY.kernels.values() if isinstance(kernel, CudaKernel)}
LAYOUTS = ("NN", "NT", "TN", "TT")
DIRECTIONS = ("fprop", "dgrad", "wgrad")
#: Kernels with wgmma, each with a storage type; the last word of some kernels' problem ids.
WGMMA = dict.fromkeys(("wgmma", "wgmma_persistent", "wgmma_splitk"), "bf16")
WGMMA |= {"wgmma_tf32": "f32", "wgmma_3xtf32": "f32"}
WGMMA |= {"wgmma_fp8": "e4m3.bf16", "wgmma_int8": "s8.s32", "wgmma_fp8_blocks": "e4m3.bf16", "wgmma_grouped": "bf16"}
WGMMA_WORDS = {"wgmma_fp8_blocks": "/scale-blocks", "wgmma_grouped": "/groups3-skewed"}
#: Convolutions that CPU kernels divide into more than one block, panel, strip or item along each dimension, without
#: dividing evenly.
RAGGED = (
    "n2c70h23w29k67r3s3pad1",
    "n1c97h40w37k41r3s3pad2-1x0-1",
    "n3c5h31w33k9r5s7pad2x3stride2x1",
    "n1c401h9w11k35r1s1",
    "n1c33h1w700k34r1s3pad0x1",
)


def convolution(sizes, variant="nchw/fprop", dtype="f32"):
    sizes, slash, options = sizes.partition("/")
    return REGISTRY.problem(f"conv/{sizes}/{dtype}/{variant}{slash}{options}")


def chosen(kernel, problem):
    """Return the emulated case of a problem with the tile that a run uses."""
    parsed = REGISTRY.problem(problem) if isinstance(problem, str) else problem
    return EmulatedCase(CUDA[kernel], parsed, CUDA[kernel].default_tile(parsed))


def cases(kernel, *problems):
    known = CUDA[kernel]
    parsed = [REGISTRY.problem(p) if isinstance(p, str) else p for p in problems]
    taken = [p for p in parsed if known.refuses(p) is None]
    return [EmulatedCase(known, p, tile) for p in taken for tile in known.tiles() if known.unwanted(p, tile) is None]


def refusal(kernel, problem):
    return REGISTRY.kernels[kernel].refuses(REGISTRY.problem(problem)) or ""


def lean(kernel, names, arch):
    """Compile entries of a kernel; assert that none spills, uses the stack, or has a loss that ptxas reports."""
    cubin = compile_cubin(CUDA[kernel].source, tuple(dict.fromkeys(names)), arch, kernel)
    for entry, used in cubin.resources.items():
        assert (used.spill_bytes, used.stack_bytes) == (0, 0), entry
    assert losses(cubin.log) == []
    return cubin


#: The variants of operations, without sizes, and the kernels that this process has run on them.
_compiled = set()


@contextmanager
def compiling(problem, *words):
    """Lock an operation while this process compiles for it, so that parallel tests do not compile functions twice."""
    op, _, variant = problem.split("/", 2)
    if (op, variant, *words) in _compiled:
        yield
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{op}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # explicit, since a child forked meanwhile also has the file open
    _compiled.add((op, variant, *words))


def verified(problem, *kernels, threads=2):
    with compiling(problem, kernels, threads > 1):
        return run_job(Job((problem,), kernels, Mode.VERIFY, (), 0, Budget(), threads=threads))


def failures(problem, *kernels, threads=2):
    rows = verified(problem, *kernels, threads=threads)
    assert len(rows) == len(kernels)
    return {row.kernel: f"{row.status}: {row.reason}" for row in rows if row.status != "ok"}


def drawn(text):
    problem = REGISTRY.problem(text)
    draw = Draw(problem, 7)
    draw.redraw()
    return problem, draw.views("C")


def referenced(text):
    problem, x = drawn(text)
    return problem, x, problem.reference(x, np.random.default_rng(0))


#: A launch, and the operands, draw and scratch of its set-up.
SetUp = namedtuple("SetUp", "launch operands draw scratch")


def set_up(problem, kernel, threads=2):
    parsed, declared, device = REGISTRY.problem(problem), REGISTRY.kernels[kernel], Cpu()
    draw, operands = loaded(parsed, device, memory=declared.host_memory)
    scratch = ScratchBuffers(device, declared.host_memory)
    with compiling(problem, kernel, threads > 1):
        launch = declared.launch(parsed, Operands(operands, declared.order, device, threads, scratch))
    return SetUp(launch, operands, draw, scratch)


def compiled_by(launch):
    """Return the functions that Numba compiles during a launch, on any thread, with their arguments' types."""
    event = pytest.importorskip("numba.core.event")
    with event.install_recorder("numba:compile") as compiled:
        launch()
    return [(event.data["dispatcher"].py_func, event.data["args"]) for _, event in compiled.buffer if event.is_start]


def allocated_by(launch):
    """Return the peak of the bytes that Python and NumPy allocate during a launch."""
    tracemalloc.start()
    launch()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


#: The advice of ptxas about wgmma and setmaxnreg has numbers from C7508 on, and is information, not a warning.
_LOSS = re.compile(r"\(C75\d\d\)|Potential Performance Loss|[1-9]\d* bytes spill (?:stores|loads)")


def losses(log):
    """Return the lines of a log about serialised wgmma, an ignored setmaxnreg, or spilled registers."""
    return [line.strip() for line in log.splitlines() if _LOSS.search(line)]


TUNABLE = {k.id: k for k in REGISTRY.kernels.values() if k.is_ours and k.tunables}
TUNABLE_CUDA = {name: kernel for name, kernel in TUNABLE.items() if isinstance(kernel, CudaKernel)}
TUNABLE_CPU = {name: kernel for name, kernel in TUNABLE.items() if kernel.device == "cpu"}
#: A typical problem for tuning, by kernel, or by operation for all other kernels.
TYPICAL_OF = {
    "gemm": "gemm/m4096n4096k4096/{dtype}/NN",
    **{
        f"gemm/cuda.{name}": "gemm/m4096n4096k4096/{dtype}/NT"
        for name in ("wgmma_tf32", "wgmma_3xtf32", "wgmma_fp8", "wgmma_int8", "mma_int8")
    },
    "gemm/cuda.wgmma_tf32_turned": "gemm/m4096n4096k4096/f32/TN",
    "gemm/cuda.wgmma_fp8_blocks": "gemm/m4096n4096k4096/{dtype}/NT/scale-blocks",
    "gemm/cuda.wgmma_grouped": "gemm/m8192n4096k4096/{dtype}/NT/groups8-skewed",
    **{f"gemm/cuda.async_{name}": "gemm/m4096n4096k4096/f32/NN/epi-bias-relu" for name in ("fused", "two_step")},
    "gemm/cuda.batched": "gemm/m32n32k32/f32/NN/batch4096",
    "gemm/cuda.skinny": "gemm/m16n4096k4096/{dtype}/NT",
    "transpose": "transpose/m2048n26752/f32/out",
    **{f"transpose/{name}": "transpose/m2048n26752/f32/in" for name in ("numba.tiles", "cuda.c2r", "cuda.c2r_fused")},
    "transpose/cuda.tiled_inplace": "transpose/m4096n4096/f32/in",
    "copy": "copy/m2048n26752/f32",
    "aggregate": "aggregate/w4n51200000/f32",
    **{f"aggregate/cuda.{name}": "aggregate/w4n51200000/f32/ef" for name in ("onebit", "int8")},
    "transfer": "transfer/n51200000/f32/h2d",
    "transfer/cuda.arrived": "transfer/n51200000/f32/d2d/work64",
    "conv": "conv/n8c256h56w56k256r3s3pad1/{dtype}/{layout}/fprop",
    "conv/cuda.depthwise": "conv/n8c256h56w56k256r3s3pad1/f32/nchw/fprop/g256",
    "conv/cuda.fft_fused": "conv/n128c3h128w128k96r11s11/f32/nchw/fprop",
}


def typical(kernel):
    axes = {"dtype": "f32", "layout": "nchw"} | {axis: str(values[0]) for axis, values in kernel.domain.items()}
    return REGISTRY.problem(TYPICAL_OF.get(kernel.id, TYPICAL_OF[kernel.op]).format(**axes))
