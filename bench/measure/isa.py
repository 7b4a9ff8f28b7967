"""Instruction sets: whether this CPU has one, and the environment that restricts a process's libraries to it."""

import os
import platform
from typing import NamedTuple

import numpy as np

from kernelmark.bench.measure.affinity import CPUINFO, cpu_facts
from kernelmark.bench.plan.errors import UsageError


class Isa(NamedTuple):
    """The CPU flags of an instruction set, libraries' names for it, and the features that NumPy may dispatch to."""

    flags: tuple[str, ...]
    openblas: str
    onednn: str
    mkl: str
    torch: str
    llvm: str
    numpy: tuple[str, ...]


_SSE = ("SSE", "SSE2", "SSE3", "SSSE3", "SSE41", "POPCNT", "SSE42")
_AVX = (*_SSE, "AVX", "F16C")
_AVX2 = (*_AVX, "FMA3", "AVX2", "X86_V3")
_AVX512 = ("avx2", "fma", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")
#: Each instruction set includes the sets above it. With avx512, NumPy may use all features, since it divides AVX-512
#: into many features.
ISAS = {
    "sse": Isa(("sse4_2",), "Nehalem", "SSE41", "SSE4_2", "default", "nehalem", _SSE),
    "avx": Isa(("avx",), "Sandybridge", "AVX", "AVX", "default", "sandybridge", _AVX),
    "avx2": Isa(("avx2", "fma"), "Haswell", "AVX2", "AVX2", "avx2", "haswell", _AVX2),
    "avx512": Isa(_AVX512, "SkylakeX", "AVX512_CORE", "AVX512", "avx512", "skylake-avx512", ()),
}


def choose_isas(text: str | None, option: str = "--isa") -> tuple[str, ...]:
    """Return the sets named in a text like `sse,avx2`, or `("",)` for None. Raises UsageError if the CPU lacks one."""
    if text is None:
        return ("",)
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in ISAS:
            raise UsageError(
                f"{option} {word or repr(text)}: unknown; expected some of {', '.join(ISAS)}, separated by commas"
            )
    flags = _cpu_flags(option)
    for word in words:
        if missing := [flag for flag in ISAS[word].flags if flag not in flags]:
            here = ", ".join(isas_here()) or "none of them"
            raise UsageError(f"{option} {word}: this CPU has no {' '.join(missing)}; it has {here}")
    return words


def isas_here() -> list[str]:
    """Return the instruction sets in ISAS that this CPU has; none if it is not an x86 CPU."""
    try:
        flags = _cpu_flags("")
    except UsageError:
        return []
    return [name for name, isa in ISAS.items() if flags.issuperset(isa.flags)]


def _cpu_flags(option: str) -> frozenset[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise UsageError(f"{option} is for x86 CPUs, this one is {platform.machine()}; leave it out")
    if not (facts := cpu_facts()):
        raise UsageError(f"{option}: {CPUINFO} does not list the flags of this CPU; leave {option} out")
    return frozenset(facts.get("flags", "").split())


def environment(isa: str) -> dict[str, str]:
    """Return the variables that restrict a process's libraries to an instruction set; none for ""."""
    if not isa:
        return {}
    chosen = ISAS[isa]
    variables = {
        "OPENBLAS_CORETYPE": chosen.openblas,
        "ONEDNN_MAX_CPU_ISA": chosen.onednn,
        "MKL_ENABLE_INSTRUCTIONS": chosen.mkl,
        "ATEN_CPU_CAPABILITY": chosen.torch,
        "NUMBA_CPU_NAME": chosen.llvm,
        # Set, since Numba would otherwise add this CPU's features; kernelmark's kernels read this variable, too.
        "NUMBA_CPU_FEATURES": ",".join(f"+{flag.replace('_', '.')}" for flag in chosen.flags),
    }
    if disabled := _numpy_beyond(chosen):
        variables["NPY_DISABLE_CPU_FEATURES"] = " ".join(disabled)
    return variables


def _numpy_beyond(isa: Isa) -> list[str]:
    """Return the NumPy features to disable, those beyond `isa`; NumPy's baseline, at most SSE4.2, is always on."""
    already = os.environ.get("NPY_DISABLE_CPU_FEATURES", "").replace(",", " ").split()
    if not isa.numpy:
        return already
    config: dict[str, dict[str, list[str]]] = np.show_config(mode="dicts")  # type: ignore[assignment]
    features = config.get("SIMD Extensions", {}).get("found", [])
    return already + [feature for feature in features if feature not in isa.numpy]
