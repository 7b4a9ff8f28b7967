"""Check right results of thousands of drawn problems: none may be called wrong.

The results come from every CPU kernel that supports the problem, and from the float64 reference, which is rounded once
to the storage type and checked in every numerics. Half of the problems are checked like large ones, by samples and
sums. Then a few elements change, and the output of a second call is checked like the outputs of timed calls.

With `--timed`, each problem's kernels are measured in turn in a worker process; none may be accused of cheating.
"""

import argparse
import itertools
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any
from unittest.mock import patch

import numpy as np

from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.draw import THIRD, Draw
from kernelmark.bench.measure.operands import Operands, OperandSet, ScratchBuffers
from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.measure.verify import Checksums, References
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import NUMERICS, numpy_dtype, split_dtype
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import Kernel, Launch
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import OTHER_DISTRIBUTIONS, UNIFORM, Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.selftest.finding import measured
from kernelmark.kernels.conv import _reference as conv_reference
from kernelmark.kernels.gemm import _reference as gemm_reference

#: The most multiply-adds of a drawn problem.
LARGEST = 2**25
REFERENCES: tuple[Any, ...] = (gemm_reference, conv_reference)
#: The time limit of a kernel that is measured.
BUDGET = Budget(max_time_s=0.3)


def size(rng: np.random.Generator, largest: int) -> int:
    """Return a size from 1 to `largest`, uniform in its logarithm."""
    return int(2 ** rng.uniform(0, np.log2(largest + 1)))


def pick(rng: np.random.Generator, *choices: str) -> str:
    return choices[int(rng.integers(len(choices)))]


def gemm(rng: np.random.Generator) -> str:
    sizes = "".join(f"{name}{size(rng, 4096 if name == 'k' else 600)}" for name in "mnk")
    words = [pick(rng, "NN", "NT", "TN", "TT"), pick(rng, "", "", "alpha1.5", "alpha-0.25")]
    words += [pick(rng, "", "", word) for word in ("beta0.5", "batch3", "lda+3", "ldc+1")]
    words += [pick(rng, "", "", "", "epi-bias-relu", "epi-sigmoid", "epi-update")]
    dtype = pick(
        rng, "f32", "f32", "f64", "f16", "bf16", "f16.f32", "bf16.f32", "e4m3.f32", "e4m3.bf16", "e5m2.f32", "s8.s32"
    )
    if dtype == "s8.s32":
        words = [word for word in words if not word.startswith(("alpha", "beta", "epi"))]
    if words[0][0] == "N" and dtype[-3:] != "s32" and "8" not in dtype and not words[-1] and "batch3" not in words:
        words[-1] = pick(rng, "", "", f"groups{size(rng, 40)}-equal", f"groups{size(rng, 40)}-skewed")
    if dtype.startswith("e4m3") and words[0] == "NT":
        words[-1] = pick(rng, words[-1], "scale-blocks")
    return "/".join(["gemm", sizes, dtype, *filter(None, words)])


def conv(rng: np.random.Generator) -> str:
    groups = int(pick(rng, "1", "1", "1", "2", "5"))
    n, c, k = size(rng, 6), groups * size(rng, 48), groups * size(rng, 48)
    h, w, r, s = size(rng, 30), size(rng, 30), size(rng, 7), size(rng, 7)
    pad = pick(rng, "", "", "pad1", "pad3", "pad0-2x1", f"pad{size(rng, 16)}")
    stride = pick(rng, "", "", "stride2", "stride4", "stride1x3")
    words = [pick(rng, "nchw", "nhwc"), pick(rng, "fprop", "dgrad", "wgrad"), pick(rng, "", "", "dil2")]
    words += [f"g{groups}"] if groups > 1 else []
    dtype = pick(rng, "f32", "f32", "f16", "bf16")
    return "/".join(["conv", f"n{n}c{c}h{h}w{w}k{k}r{r}s{s}{pad}{stride}", dtype, *filter(None, words)])


def fft(rng: np.random.Generator) -> str:
    h = 1 if rng.random() < 0.5 else size(rng, 100)
    w = size(rng, 2000 if h == 1 else 100)
    return f"fft/b{size(rng, 20)}h{h}w{w}/{pick(rng, 'f32', 'f64')}/{pick(rng, 'r2c', 'c2r', 'c2c', 'c2c/inverse')}"


def transpose(rng: np.random.Generator) -> str:
    place = pick(rng, "in", "out", "out")
    batch = pick(rng, "", f"b{size(rng, 8)}") if place == "out" else ""
    sizes = f"{batch}m{size(rng, 700)}n{size(rng, 700)}"
    return f"transpose/{sizes}/{pick(rng, 'f32', 'f64', 'f16', 'bf16')}/{place}"


def copy(rng: np.random.Generator) -> str:
    return f"copy/m{size(rng, 700)}n{size(rng, 700)}/{pick(rng, 'f32', 'f64', 'f16', 'bf16')}"


def fma(rng: np.random.Generator) -> str:
    return f"fma/n{size(rng, 4096)}k{size(rng, 1000)}/{pick(rng, 'f32', 'f64')}"


def transfer(rng: np.random.Generator) -> str:
    return f"transfer/n{size(rng, 500_000)}/{pick(rng, 'f32', 'f64', 'f16', 'bf16')}/h2h"


def aggregate(rng: np.random.Generator) -> str:
    words = [pick(rng, "", "update"), pick(rng, "", "ef", "ef")]
    sizes = f"w{pick(rng, '2', '2', '3', '4')}n{size(rng, 70_000)}"
    return "/".join(["aggregate", sizes, pick(rng, "f32", "f32", "f64"), *filter(None, words)])


#: Operations with their relative frequencies.
DRAWS = ((gemm, 8), (conv, 8), (fft, 3), (transpose, 3), (copy, 1), (fma, 1), (transfer, 1), (aggregate, 2))


def problems(registry: Registry, count: int, seed: int, op: str = "") -> Iterator[Problem]:
    """Yield drawn problems, of the operation `op` if given, each of at most LARGEST multiply-adds."""
    rng = np.random.default_rng(seed)
    draws = [draw for draw, weight in DRAWS for _ in range(weight) if op in ("", draw.__name__)]
    while count:
        with suppress(UsageError):  # parts that do not fit together
            text, last = draws[int(rng.integers(len(draws)))](rng), pick(rng, *[""] * 9, *OTHER_DISTRIBUTIONS)
            problem = registry.problem("/".join(filter(None, (text, last))))
            if problem.flop // 2 <= LARGEST:
                count -= 1
                yield problem


@contextmanager
def sampled(active: bool) -> Iterator[None]:
    """Within the context, check all elements, or, if `active`, samples and sums, as for large problems."""
    with ExitStack() as patched:
        for module in REFERENCES:
            patched.enter_context(patch.object(module, "WHOLE_REFERENCE_MACS", 0 if active else LARGEST))
        yield


def supporting(registry: Registry, problem: Problem) -> Iterator[Kernel]:
    """Yield the CPU kernels of kernelmark that can run on a problem."""
    kernels = (k for k in registry.kernels.values() if k.op == problem.op and k.device == "cpu" and k.is_ours)
    yield from (kernel for kernel in kernels if not (unavailable(kernel) or kernel.refuses(problem)))


def complaints(registry: Registry, problem: Problem, whole: bool, seen: Counter[str]) -> Iterator[str]:
    draw = Draw(problem, zlib.crc32(problem.id.encode()))
    for _ in range(THIRD if zlib.crc32(problem.id.encode()) % 2 else 1):  # the THIRD draw has other special values
        draw.redraw()
    if problem.distribution != UNIFORM:
        draw.redraw(problem.distribution)
    with sampled(not whole):
        yield from _rounded(problem, draw, seen)
        references = References(problem, draw, nullcontext)
        for kernel in supporting(registry, problem):
            try:
                operands, launch = _called(kernel, problem, draw)
            except Unsupported:
                continue
            seen[kernel.id] += 1
            numerics, outputs = kernel.numerics_for(problem), operands.outputs(kernel.order)
            reason = problem.check(outputs, references.get(kernel.order), numerics).reason
            sums = Checksums(problem, draw, kernel.order, nullcontext)
            if sums.possible:
                operands.freshen(draw, draw.change())
                operands.restore(draw)
                launch()
                reason = reason or sums.wrong(operands, numerics)
            if reason:
                yield f"{kernel.id} on {problem.id} ({'whole' if whole else 'sampled'}): {reason}"


def _called(kernel: Any, problem: Problem, draw: Draw) -> tuple[OperandSet, Launch]:
    device = get_device("cpu")
    operands = OperandSet(problem, device, kernel.host_memory)
    scratch = ScratchBuffers(device, kernel.host_memory)
    launch = kernel.launch(problem, Operands(operands, kernel.order, device, 1, scratch))
    operands.load(draw)  # now, since planning may overwrite operands
    operands.poison()
    launch()
    return operands, launch


def _rounded(problem: Problem, draw: Draw, seen: Counter[str]) -> Iterator[str]:
    """Yield a line for each numerics in which the exact result, rounded once, is called wrong."""
    if problem.op not in ("gemm", "conv"):
        return
    views = draw.views("C")
    reference = problem.reference(views, np.random.default_rng(1))
    with sampled(False):
        whole = problem.reference(views, np.random.default_rng(1))
    outs = [operand for operand in problem.operands() if operand.role != "in"]
    exact = [np.asarray(out.values) for out in (whole, *getattr(whole, "beside", ()))]  # in the order of the outputs
    if problem.op == "gemm":
        exact = [values.reshape(out.shape) for values, out in zip(exact, outs, strict=True)]
    elif problem.layout == "nhwc":  # type: ignore[attr-defined]
        exact = [values.transpose(0, 2, 3, 1) for values in exact]
    stored = numpy_dtype(split_dtype(problem.dtype)[1])
    result = {out.name: values.astype(stored) for out, values in zip(outs, exact, strict=True)}
    for numerics in NUMERICS:
        if numerics == "exact" or (problem.dtype == "f64") != numerics.endswith("64"):
            continue
        if problem.op == "gemm" and numerics in ("winograd", "winograd4", "fft"):
            continue
        seen[f"rounded {problem.op}"] += 1
        if reason := problem.check(result, reference, numerics).reason:
            yield f"exact result of {problem.id} as {numerics}: {reason}"


def alarms(registry: Registry, count: int, seed: int, seen: Counter[str], op: str = "") -> Iterator[str]:
    wholes = itertools.cycle((True, False))
    for problem, whole in zip(problems(registry, count, seed, op), wholes, strict=False):
        yield from complaints(registry, problem, whole, seen)


def timed_alarms(registry: Registry, count: int, seed: int, seen: Counter[str], op: str = "") -> Iterator[str]:
    """Yield a line for each kernel that fails or is accused when problems are measured alternately hot and cold."""
    modes = itertools.cycle((Mode.HOT, Mode.COLD))
    for problem, mode in zip(problems(registry, count, seed, op), modes, strict=False):
        kernels = [kernel.id for kernel in supporting(registry, problem)]
        drawn = zlib.crc32(problem.id.encode())
        for row in measured((problem.id,), kernels, mode=mode, budget=BUDGET, seed=drawn) if kernels else ():
            seen[row.kernel] += row.status != Status.UNSUPPORTED
            if row.status not in (Status.OK, Status.UNSUPPORTED):
                yield f"{row.kernel} on {problem.id} ({mode}): {row.status}: {row.reason}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--op", default="", choices=[draw.__name__ for draw, _ in DRAWS])
    parser.add_argument("--timed", action="store_true", help="measure each kernel for 0.3 s in a worker process")
    options = parser.parse_args()
    seen, alarm_count = Counter[str](), 0
    found = timed_alarms if options.timed else alarms
    for alarm in found(discover(), options.problems, options.seed, seen, options.op):
        alarm_count += 1
        print(alarm, flush=True)
    for name, count in sorted(seen.items()):
        print(f"{count:6d} {name}")
    print(f"{alarm_count} false alarms in {seen.total()} right results of {options.problems} problems")
    return int(alarm_count > 0)


if __name__ == "__main__":
    sys.exit(main())
