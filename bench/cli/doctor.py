"""The command `doctor`: it reports whether each part of the machine is usable, and how to fix it if not."""

import shutil
import sys
from pathlib import Path

import click
import msgspec

from kernelmark.bench.cli.listing import remedied
from kernelmark.bench.cli.shared import db_option
from kernelmark.bench.measure.cpu import cpu_count, cpu_name, known_llc_bytes
from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.measure.machine import environment
from kernelmark.bench.measure.present import cuda_missing, module_missing, module_version, unavailable
from kernelmark.bench.measure.roofline import in_force
from kernelmark.bench.measure.timing import resolution
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.text import indented
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report.format import count
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.tune.tuned import AUTO, file_of, tiles_in, usable

COLUMNS = (TableColumn("usable"), TableColumn("part"), TableColumn("found", wraps=30))
_MODULES = (
    ("numpy", "CPU kernels"),
    ("scipy", "gemm/scipy.*"),
    ("pyfftw", "FFT on the CPU"),
    ("numba", "kernelmark's CPU kernels"),
    ("ml_dtypes", "bfloat16"),
    ("cuda.core", "compiling and launching .cu files"),
    ("cupy", "GPU arrays, streams, events"),
    ("nvmath.bindings", "cuBLAS"),
    ("pycuda.driver", "the second launcher"),
    ("torch", "oneDNN convolution"),
)


class ExaminedPart(msgspec.Struct, forbid_unknown_fields=True):
    """A part that `doctor` has examined. found: its description, or why it cannot be used and how to fix that."""

    part: str
    usable: bool
    found: str


class Diagnosis(ExaminedPart):
    """The state of a part of the machine or of kernelmark. kernels: ids of kernels that cannot run because of it."""

    kernels: tuple[str, ...] = ()


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also list the kernels that cannot run here.")
@click.option("--json", "prints_json", is_flag=True, help="Print JSON.")
@db_option
def doctor(everything: bool, prints_json: bool, db: Path | None) -> None:
    """Report what is usable here, and how to fix what is not.

    Also shows the ceilings of the latest run.
    """
    parts = examine(db or default_store())
    click.echo(indented(list(map(_examined, parts))) if prints_json else render(parts, everything))


def examine(store: Path) -> list[Diagnosis]:
    """Return the state of every part: machine, libraries, compilers, GPU, kernels, and ceilings of the latest run."""
    llc_bytes, python = known_llc_bytes(), f"Python {sys.version.split()[0]}"
    cache = f"last-level cache {llc_bytes / 2**20:.0f} MiB" if llc_bytes else "last-level cache unknown"
    findings = [
        Diagnosis("machine", True, f"{cpu_name()}, {cpu_count()} usable CPUs, {cache}, {python}"),
        Diagnosis("clock", True, f"smallest step {resolution() * 1e9:.0f} ns"),
    ]
    for name, role in _MODULES:
        missing = module_missing(name)
        findings.append(Diagnosis(name, missing is None, missing or f"{module_version(name)} ({role})"))
    findings += [Diagnosis("BLAS", True, build) for build in environment()["blas"]]
    findings += [_tool("nvcc", "install the CUDA toolkit"), _tool("g++", "apt-get install g++")]
    reason = cuda_missing()
    findings.append(Diagnosis("GPU", reason is None, reason or "answers"))
    return [*findings, *_kernels(), *_tuned(), *_ceilings(store)]


def _tool(name: str, source: str) -> Diagnosis:
    path = shutil.which(name)
    return Diagnosis(name, path is not None, path or f"{name} is not on PATH; {source}")


def _kernels() -> list[Diagnosis]:
    registry = discover()
    reasons: dict[str, list[str]] = {}
    for kernel in registry.kernels.values():
        reasons.setdefault(unavailable(kernel) or "", []).append(kernel.id)
    usable = reasons.pop("", [])
    findings = [Diagnosis("kernels", True, f"{len(usable)} of {len(registry.kernels)} can run here")]
    return findings + [Diagnosis("kernels", False, reason, tuple(ids)) for reason, ids in reasons.items()]


def _tuned() -> list[Diagnosis]:
    findings = []
    for file in (file_of(AUTO, device) for device in devices_present()):
        try:
            good, stale = usable(tiles_in(file), discover())
        except UsageError as error:
            findings.append(Diagnosis("tuned", False, str(error)))
            continue
        if good:
            findings.append(Diagnosis("tuned", True, f"{count(len(good), 'tile')} in {file.path}"))
        findings += [Diagnosis("tuned", False, f"{entry}; tune again") for entry in stale]
    return findings


def _ceilings(path: Path) -> list[Diagnosis]:
    if not path.is_file():
        return []
    with Store(path, create=False) as store:
        runs = store.run_ids()
        measured = in_force(store.ceilings(runs[-1])) if runs else []
    findings = [
        Diagnosis("ceilings", False, f"run {runs[-1]}: {c.device} {c.kind}, {count(c.threads, 'thread')}: {doubt}")
        for c, doubt in measured
        if doubt
    ]
    good = sum(not doubt for _, doubt in measured)
    return findings + ([Diagnosis("ceilings", True, f"run {runs[-1]}: {good} are valid")] if good else [])


def render(findings: list[Diagnosis], everything: bool) -> str:
    """Return the findings as a table, with the number of kernels that cannot run. everything: also list their names."""
    cells = [("yes" if f.usable else "NO", f.part, _words(f)) for f in findings]
    names = [
        paragraph(f"{count(len(f.kernels), 'kernel')} cannot run here, {f.found}: {', '.join(f.kernels)}")
        for f in findings
        if f.kernels and everything
    ]
    hidden = any(f.kernels for f in findings) and not everything
    return "\n\n".join([table(COLUMNS, cells), *names, *(["--all lists the kernels that cannot run"] * hidden)])


def _words(f: Diagnosis) -> str:
    if f.usable or f.part == "ceilings":
        return f.found
    return f"{count(len(f.kernels), 'kernel')} cannot run here: {remedied(f.found)}" if f.kernels else remedied(f.found)


def _examined(f: Diagnosis) -> ExaminedPart:
    return ExaminedPart(f.part, f.usable, ": ".join(filter(None, (", ".join(f.kernels), f.found))))
