"""What each plan hands over is what the kernel takes, as its cubin has it: number, order, width and kind."""

import subprocess
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.measure.compile import Cubin, compile_cubin
from kernelmark.bench.measure.cubin import elf_parameters
from kernelmark.bench.measure.launch import c_scalar
from kernelmark.bench.measure.tensormap import NBYTES
from kernelmark.bench.plan.kernel import CudaKernel, Im2colMap, KernelCall, Scratch, TensorMap
from kernelmark.bench.tune.inspect import sample_problem
from support.kernels import CUDA as KERNELS
from support.kernels import REGISTRY

ARCH = "sm_90a"
KINDS = {"int": "i4", "unsigned int": "i4", "float": "f4", "double": "f8"}
KINDS |= dict.fromkeys(("long", "unsigned long", "long long", "unsigned long long"), "i8")


def handed_over(value: Any) -> str:
    """Return kind and bytes of a plan's argument: pointer, integer, floating point or struct."""
    if isinstance(value, str | Scratch):
        return "p8"
    if isinstance(value, TensorMap | Im2colMap):
        return f"s{NBYTES}"
    scalar = c_scalar(value, "argument")
    kind = {"u": "i", "V": "s"}.get(scalar.dtype.kind, scalar.dtype.kind)
    return f"{kind}{scalar.dtype.itemsize}"


def demangled(symbols: list[str]) -> list[list[str]]:
    """Return the C types of each symbol's parameters; none where the entry is extern "C"."""
    named = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    return [divided(line) for line in named.splitlines()]


def divided(signature: str) -> list[str]:
    """Return the parts of the last list in parentheses."""
    parts, depth = [""], 0
    for letter in reversed(signature if signature.endswith(")") else ""):
        depth += (letter in ")>") - (letter in "(<")
        if not depth:
            break
        if letter == "," and depth == 1:
            parts.append("")
        elif depth > 1 or letter != ")":
            parts[-1] += letter
    return [part[::-1].strip() for part in reversed(parts) if part]


def taken(cubin: Cubin, symbol: str, types: list[str]) -> list[str]:
    """Return kind and bytes of each parameter; the kind is `?` where the symbol has no types."""
    sizes = elf_parameters(cubin.code, symbol)
    assert len(types) in (0, len(sizes)), f"{symbol}: {len(sizes)} parameters, and types {types}"
    if not types:
        return [f"?{size}" for size in sizes]
    kinds = [
        "p8" if kind.endswith("*")
        else f"i{size}" if kind == "Int8::Sum"
        else f"f{size}" if kind.endswith("::Sum")  # float or double, as the arithmetic adds
        else KINDS.get(kind, f"s{size}")
        for kind, size in zip(types, sizes, strict=True)
    ]  # fmt: skip
    assert [int(kind[1:]) for kind in kinds] == sizes
    return kinds


def misfits(kernel: CudaKernel, calls: list[tuple[str, KernelCall]]) -> list[str]:
    """Return a line for each launch whose arguments are not what the kernel's parameters are."""
    cubin = compile_cubin(kernel.source, tuple(dict(calls)), ARCH, kernel.id)
    found, types = [], demangled([cubin.symbols[entry] for entry, _ in calls])
    for (entry, call), kinds in zip(calls, types, strict=True):
        given, expected = list(map(handed_over, call.args)), taken(cubin, cubin.symbols[entry], kinds)
        if len(given) != len(expected) or any(not fits(*pair) for pair in zip(given, expected, strict=True)):
            found.append(f"{entry} takes {expected}, the plan hands over {given}")
    return found


def fits(given: str, expected: str) -> bool:
    return given[1:] == expected[1:] and expected[0] in (given[0], "?")


def plan(kernel: CudaKernel) -> list[tuple[str, KernelCall]]:
    problem = sample_problem(kernel, REGISTRY.problem_class(kernel.op, kernel.id))
    return kernel.calls(problem, kernel.tile_for(problem))


@pytest.mark.parametrize("name", KERNELS)
def test_a_plan_hands_over_what_the_kernel_takes(name: str, cuda_compiler: str) -> None:
    assert misfits(KERNELS[name], plan(KERNELS[name])) == []


@pytest.mark.parametrize(
    ("place", "value"), [(3, np.int64(7)), (3, 7.0), (3, "a"), (6, 7), (0, 7), (0, np.int64(7)), (-1, 7)]
)
def test_an_argument_of_another_kind_is_found(place: int, value: Any, cuda_compiler: str) -> None:
    kernel = KERNELS["gemm/cuda.tiled"]
    ((entry, call),) = plan(kernel)
    arguments = list(call.args)
    arguments[place] = value
    assert misfits(kernel, [(entry, replace(call, args=tuple(arguments)))])


def test_an_argument_too_many_or_too_few_is_found(cuda_compiler: str) -> None:
    kernel = KERNELS["gemm/cuda.tiled"]
    ((entry, call),) = plan(kernel)
    for arguments in ((*call.args, 1), call.args[:-1]):
        assert misfits(kernel, [(entry, replace(call, args=arguments))])
