"""What `kernelmark doctor` finds: each part, whether it is usable, and the command that would fix it."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench.measure.cpu import cpu_count, cpu_name, last_level_cache_bytes
from bench.measure.cuda import cuda_missing
from bench.measure.machine import environment, module_missing, module_version, unavailable
from bench.measure.timing import resolution
from bench.plan.discovery import discover
from bench.record.store import Store

Finding = dict[str, Any]
_MODULES = (
    ("numpy", "CPU kernels"),
    ("scipy", "gemm/scipy.*"),
    ("pyfftw", "FFT on the CPU"),
    ("numba", "our own CPU kernels"),
    ("ml_dtypes", "bfloat16"),
    ("cuda.core", "compiling and launching .cu files"),
    ("cupy", "GPU arrays, streams, events"),
    ("nvmath.bindings", "cuBLAS"),
    ("pycuda.driver", "the second launcher"),
    ("torch", "oneDNN convolution"),
)


def examine(store: Path) -> list[Finding]:
    """Every part with what was found: machine, libraries, compilers, GPU, kernels, ceilings of the latest run."""
    findings = [_machine(), _clock(), *(_module(name, role) for name, role in _MODULES)]
    findings += [{"part": "BLAS", "usable": True, "found": build} for build in environment()["blas"]]
    findings += [_tool("nvcc", "the CUDA toolkit"), _tool("g++", "apt-get install g++")]
    reason = cuda_missing()
    findings.append({"part": "GPU", "usable": reason is None, "found": reason or "answers"})
    return [*findings, *_kernels(), *_ceilings(store)]


def _machine() -> Finding:
    cache = last_level_cache_bytes() / 2**20
    found = (
        f"{cpu_name()}, {cpu_count()} CPUs usable, last-level cache {cache:.0f} MiB, Python {sys.version.split()[0]}"
    )
    return {"part": "machine", "usable": True, "found": found}


def _clock() -> Finding:
    return {"part": "clock", "usable": True, "found": f"smallest step {resolution() * 1e9:.0f} ns"}


def _module(name: str, role: str) -> Finding:
    missing = module_missing(name)
    return {"part": name, "usable": missing is None, "found": missing or f"{module_version(name)} ({role})"}


def _tool(name: str, source: str) -> Finding:
    path = shutil.which(name)
    return {"part": name, "usable": path is not None, "found": path or f"not on PATH; {source} brings it"}


def _kernels() -> list[Finding]:
    registry = discover()
    reasons: dict[str, list[str]] = {}
    for kernel in registry.kernels.values():
        reasons.setdefault(unavailable(kernel) or "", []).append(kernel.id)
    usable = reasons.pop("", [])
    findings = [{"part": "kernels", "usable": True, "found": f"{len(usable)} of {len(registry.kernels)} can run here"}]
    return findings + [
        {"part": "kernels", "usable": False, "found": f"{', '.join(ids)}: {reason}"} for reason, ids in reasons.items()
    ]


def _ceilings(path: Path) -> list[Finding]:
    """Report whether the ceilings that the latest run was held against hold themselves."""
    if not path.is_file():
        return []
    store = Store(path, create=False)
    try:
        runs = store.run_ids()
        measured = store.ceilings(runs[-1]) if runs else []
    finally:
        store.close()
    findings = [{"part": "ceilings", "usable": False, "found": f"run {runs[-1]}: {d}"} for _, d in measured if d]
    good = sum(not doubt for _, doubt in measured)
    return findings + ([{"part": "ceilings", "usable": True, "found": f"run {runs[-1]}: {good} hold"}] if good else [])


def render(findings: list[Finding], as_json: bool) -> str:
    """Return a table, or JSON."""
    if as_json:
        return json.dumps(findings, indent=2)
    cells = [("ok" if f["usable"] else "--", f["part"], f["found"]) for f in findings]
    table: str = tabulate(cells, tablefmt="plain", maxcolwidths=[None, None, 100])
    return table
