"""Compare hardware counters with the counts of `kernelmark profile`, and run compute-sanitizer on kernels.

`python tools/counters.py --out FOLDER` reads Nsight Compute's counters of the kernels in CHOSEN and writes
FOLDER/counters.json and counters.md. `--table FOLDER` writes counters.md again, without a GPU. `--sanitizer KERNEL...`
checks kernels. `--launch KERNEL PROBLEM...` is the process that the two tools inspect, one for each kernel.
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from kernelmark.bench.emulator.build import CUDA
from kernelmark.bench.emulator.shapes import is_whole, problems
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.measure.compile import in_parallel
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.launch import cuda_launch
from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.measure.operands import Operands, ScratchBuffers, loaded, place_of
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.report.layout import TableColumn
from kernelmark.bench.report.layout import table as in_columns
from kernelmark.bench.run.child import Lost, answers
from kernelmark.bench.tune.profile.counted import Counts, counted_kernel, counts_of

Pair = tuple[str, str]
_SQUARE, _PLANE = "m512n512k512", "transpose/m512n1024/f32/out"
_IMAGES = "conv/n4c64h28w28k64r3s3pad1/f32/nchw/fprop"
#: Kernels, each with a problem that takes ncu about a second.
CHOSEN: tuple[Pair, ...] = (
    ("gemm/cuda.naive", "gemm/m256n256k256/f32/NN"),
    ("gemm/cuda.tiled", f"gemm/{_SQUARE}/f32/NN"),
    ("gemm/cuda.warptile", f"gemm/{_SQUARE}/f32/NN"),
    ("gemm/cuda.async", f"gemm/{_SQUARE}/f32/NT"),
    ("gemm/cuda.mma", f"gemm/{_SQUARE}/f16/NN"),
    ("gemm/cuda.wgmma", f"gemm/{_SQUARE}/f16/NN"),
    ("transpose/cuda.naive", _PLANE),
    ("transpose/cuda.unpadded", _PLANE),
    ("transpose/cuda.tiled", _PLANE),
    ("transpose/cuda.vectorised", _PLANE),
    ("copy/cuda.vectorised", "copy/m1024n1024/f32"),
    ("conv/cuda.implicit", _IMAGES),
    ("conv/cuda.winograd", _IMAGES),
    ("fft/cuda.small", "fft/b64h32w32/f32/r2c"),
    ("aggregate/cuda.device", "aggregate/w4n1048576/f32"),
)
#: Seconds for one process, including compilation.
LIMIT_S = 60.0
DEADLINE_S = 300.0
DATA = "counters.json"
#: The start of the line in which a process of `--launch` describes its device.
_DEVICE = "kernelmark-device "
#: Parts of error messages that every other kernel would get, too.
REFUSALS = ("ERR_NVGPUCTRPERM", "Failed to initialize the profiler", "not compatible", "ot supported", "on the PATH")


class Figure(NamedTuple):
    """A count of `kernelmark profile`, and the metrics of ncu whose sum it is compared with.

    metrics: the summands, each as alternative names, of which the first with a value above 0 is used. if_counted:
    compare only if the profile's count is not 0, since the metrics include other events.
    """

    metrics: tuple[tuple[str, ...], ...]
    counted: Callable[[Counts], int | None]
    if_counted: bool = False


def _tensor(counts: Counts) -> int:
    """Return the warp instructions of wgmma and mma.sync; calls of `ptx::mma_*` count as mma.sync."""
    instructions = counts.total.others.get("product", 0)
    for line in counts.lines:
        path = CUDA / line.file
        if collectives := line.others.get("collective", 0):
            instructions += collectives * ("ptx::mma_" in path.read_text().splitlines()[line.line - 1])
    return instructions


_SECTORS, _WAVEFRONTS = "l1tex__t_sectors_pipe_lsu_mem_global_op", "l1tex__data_pipe_lsu_wavefronts_mem_shared"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op"
#: The accesses that the counters of `ld` and `st` include.
_ACCESSES = ("load", "matrix", "store")
FIGURES: Mapping[str, Figure] = {
    "warp instructions": Figure((("smsp__inst_executed.sum",),), lambda counts: counts.total.warp_instructions),
    "FFMA, lanes": Figure(
        (("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",),),
        lambda counts: None if counts.total.fma is None else 32 * counts.total.fma,
    ),
    "tensor instructions": Figure(
        ((*(f"sm__inst_executed_pipe_tensor_op_{op}.sum" for op in ("gmma", "hmma")),),), _tensor, if_counted=True
    ),
    "sectors read": Figure(
        (
            (f"{_SECTORS}_ld.sum",),  # includes LDGSTS
            ("l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",),
        ),
        lambda counts: counts.total.bytes_read // 32,
    ),
    "sectors written": Figure(
        ((f"{_SECTORS}_st.sum",), ("l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",)),
        lambda counts: counts.total.bytes_written // 32,
    ),
    "shared wavefronts": Figure(
        tuple((f"{_WAVEFRONTS}_op_{op}.sum",) for op in ("ld", "st")),
        lambda counts: sum(counts.total.wavefronts_by.get(does, 0) for does in _ACCESSES),
    ),
    "shared wavefronts, copies included": Figure(  # not read on a GPU yet
        ((f"{_WAVEFRONTS}.sum",),), lambda counts: counts.total.wavefronts - counts.total.wavefronts_by.get("box", 0)
    ),
    "bank conflicts": Figure(
        tuple((f"{_CONFLICTS}_{op}.sum",) for op in ("ld", "st")),
        lambda counts: sum(counts.total.conflicts_by.get(does, 0) for does in _ACCESSES),
    ),
    "bank conflicts of copies": Figure(
        ((f"{_CONFLICTS}_ldgsts.sum",),), lambda counts: counts.total.conflicts_by.get("copy", 0)
    ),
}
METRICS = tuple(name for figure in FIGURES.values() for names in figure.metrics for name in names)


class Device(msgspec.Struct, frozen=True):
    """The device of a launch. driver: the driver's version of CUDA."""

    name: str
    driver: str
    limits: DeviceLimits


class Row(msgspec.Struct, frozen=True):
    """The counters of a kernel on a problem, summed over its launches; if it was not measured, only the reason."""

    kernel: str
    problem: str
    date: str
    device: Device | None = None
    functions: tuple[str, ...] = ()
    values: Mapping[str, int | None] = {}
    reason: str = ""

    def measured(self, figure: Figure) -> int | None:
        counts = [[value for name in names if (value := self.values.get(name)) is not None] for names in figure.metrics]
        return sum(next(filter(None, values), 0) for values in counts) if any(counts) else None


class Check(msgspec.Struct, frozen=True):
    """The findings of compute-sanitizer in a launch. errors: their number; None, with a reason, if not checked."""

    kernel: str
    problem: str
    tool: str
    errors: int | None
    reason: str = ""

    @property
    def line(self) -> str:
        what = f"{self.tool} of {self.kernel} on {self.problem}"
        if self.errors is None:
            return f"{what}: not checked: {self.reason}"
        return f"{what}: {self.errors} errors" + f": {self.reason}" * bool(self.errors)


def launch_alone(kernel_id: str, problem_id: str) -> None:
    """Launch a kernel once on drawn operands, between the profiler's start and stop, and print the device."""
    from cuda.bindings import driver
    from cupy.cuda import set_allocator

    device, registry = get_device("cuda"), discover()
    set_allocator(None)  # separate allocations without guards, so that compute-sanitizer sees where each operand ends
    kernel, problem = _hand_written(registry, kernel_id), registry.problem(problem_id)
    facts = machine()
    where = Device(facts["gpu"], facts["cuda_driver"], present_limits())
    print(f"{_DEVICE}{msgspec.json.encode(where).decode()}", flush=True)
    place = place_of(kernel, problem, device)
    _, operands = loaded(problem, device, memory=place.memory, spread=place.spread, guard=0)
    x = Operands(operands, kernel.order, device, 1, ScratchBuffers(device, kernel.host_memory))
    launch = cuda_launch(kernel, problem, x)
    device.synchronize()
    driver.cuProfilerStart()
    launch()
    device.synchronize()
    driver.cuProfilerStop()


def _hand_written(registry: Registry, kernel_id: str) -> CudaKernel:
    kernel = registry.named(kernel_id)
    if not isinstance(kernel, CudaKernel):
        raise UsageError(f"{kernel_id}: has no .cu file; choose a hand-written kernel")
    return kernel


def _launching(kernel: str, *problems: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), "--launch", kernel, *problems]


def ncu_command(pair: Pair, metrics: Sequence[str] = METRICS) -> list[str]:
    """Return the command that reads metrics of one call of a kernel, as CSV in units without prefixes."""
    options = ["--profile-from-start", "off", "--clock-control", "none", "--print-units", "base"]
    return ["ncu", *options, "--csv", "--page", "raw", "--metrics", ",".join(metrics), *_launching(*pair)]


def parsed(text: str) -> list[tuple[str, dict[str, int | None]]]:
    """Return the launches in the output of `ncu --csv --page raw`: the function and its metrics, None for `n/a`."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines:
        return []
    names, units, *rows = csv.reader(lines)
    function = names.index("Kernel Name")
    cells = ((row[function], zip(names, units, row, strict=False)) for row in rows)
    return [(launched, {n: _number(value, unit) for n, unit, value in each if "__" in n}) for launched, each in cells]


def _number(value: str, unit: str) -> int | None:
    """Return the number in a cell such as `4,194,304`, or `1.5` with the unit `Ksector`; None for `n/a`."""
    try:
        return round(float(value.replace(",", "")) * {"K": 1e3, "M": 1e6, "G": 1e9}.get(unit[:1], 1))
    except ValueError:
        return None


def refusal(text: str) -> str:
    """Return in one line why ncu or its process failed: ncu's first error, or else the process's last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    output = [line for line in lines if not line.startswith(("==", _DEVICE))]
    reasons = [error for error in errors if "application returned an error code" not in error] or output[-1:] or errors
    return reasons[0].split(". ")[0] if reasons else "no kernel was profiled"


def _run(command: Sequence[str], until_s: float) -> tuple[int, str]:
    """Return a command's exit status and output; if it was stopped, -1 and the reason."""
    if not shutil.which(command[0]):
        return 127, f"{command[0]} is not on the PATH"
    until_s = min(until_s, now() + LIMIT_S)
    for _, reply in answers("counters", [command], LIMIT_S, until_s):
        return (-1, reply.reason) if isinstance(reply, Lost) else reply
    return -1, "the deadline came first"


def replies(questions: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
    for question in questions:
        done = subprocess.run(
            question, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"}
        )
        yield done.returncode, done.stdout.decode(errors="replace")


def counters(until_s: float, folder: Path, pairs: Sequence[Pair] = CHOSEN) -> list[Row]:
    """Read the counters of kernels until the deadline (monotonic clock), and save after each.

    The caller holds the GPU's lock. Pairs that were not measured have a row with the reason.
    """
    rows: list[Row] = []
    metrics, refused = list(METRICS), ""
    for pair in pairs:
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        row = Row(*pair, date, reason=refused) if refused else _measured(pair, date, metrics, until_s)
        refused = _refused(row.reason)
        rows.append(row)
        (folder / DATA).write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    return rows


def _refused(reason: str) -> str:
    """Return why a kernel was not measured if the reason applies to all others, too, else ""."""
    return reason if any(words in reason for words in REFUSALS) else ""


def _measured(pair: Pair, date: str, metrics: list[str], until_s: float) -> Row:
    """Return the row of a pair; metrics that ncu names in an error are no longer requested.

    ncu also prints values that were not requested, such as attributes of the device; these are dropped.
    """
    _, text = _run(ncu_command(pair, metrics), until_s)
    if not (launches := parsed(text)):
        errors = re.findall(r"\w+", "".join(line for line in text.splitlines() if line.startswith("==ERROR==")))
        known = [name for name in metrics if name.partition(".")[0] not in errors]
        if known == metrics:
            return Row(*pair, date, reason=refusal(text))
        metrics[:] = known
        return _measured(pair, date, metrics, until_s)
    sums: dict[str, int | None] = {}
    for name in filter(launches[0][1].__contains__, metrics):
        numbers = [values[name] for _, values in launches]
        sums[name] = None if None in numbers else sum(filter(None, numbers))
    (where,) = re.findall(f"^{_DEVICE}(.*)$", text, re.MULTILINE)
    device = msgspec.json.decode(where, type=Device)
    return Row(*pair, date, device, tuple(function for function, _ in launches), sums)


def profiled(row: Row) -> dict[str, int | None]:
    """Return the counts of `kernelmark profile --every-block` for a row by figure, or an empty dict if it fails."""
    registry, limits = discover(), row.device.limits if row.device else H100
    try:
        kernel, problem = counted_kernel(registry.named(row.kernel)), registry.problem(row.problem)
        tile = kernel.default_tile(problem, limits)
        counts = counts_of(EmulatedCase(kernel, problem, tile, limits), every_block=True)
    except UsageError:
        return {}
    return {name: figure.counted(counts) for name, figure in FIGURES.items()}


_COLUMNS = (
    *(TableColumn(name) for name in ("kernel", "problem", "figure")),
    *(TableColumn(name, "right") for name in ("measured", "counted", "measured / counted")),
)
_NOTE = """\
Measured: by Nsight Compute, on the device. Counted: by `kernelmark profile --every-block`, without a GPU. Sectors,
FFMA, tensor instructions and wavefronts of shared memory are meant to be equal. Figures that are 0 on both sides are
left out. What differs:

- warp instructions: the profile counts no integer arithmetic, addresses and branches.
- FFMA: inactive lanes are counted, too. Products that reach their sum through an array or a branch, as in
  `fft/cuda.small`, are fused by nvcc and not counted.
- tensor instructions: wgmma (`gmma`), or else `hmma`. The metric `hmma` is above 0 for some kernels without tensor
  instructions; kernels for which the profile counts none are left out.
- sectors read: by loads, asynchronous copies, and boxes of the TMA. If lanes skip an access in a loop that nvcc
  unrolls, the profile matches them with the wrong lanes of their warp, as at the borders of `conv/cuda.winograd`.
- shared wavefronts and bank conflicts: of loads and stores only. A delay by other accesses is measured as a conflict.
- bank conflicts of copies (`cp.async`): counted only from the addresses in shared memory. A device has more conflicts
  if 4-byte copies of a warp read several lines of 128 bytes; no rule that gives their number is known.
"""


def table(rows: Sequence[Row], run: str = "") -> str:
    """Return the measured rows with the profile's counts as Markdown, then a line for each row not measured."""
    measured = [row for row in rows if not row.reason]
    counted = zip(measured, in_parallel(profiled, measured), strict=True)
    cells = [cell for row, counts in counted for cell in _cells(row, counts)]
    where = {f"{row.date}, {row.device.name}, CUDA driver {row.device.driver}" for row in measured if row.device}
    unknown = sorted({name for row in measured for name in METRICS if row.values.get(name) is None})
    parts = [
        "# Counters",
        "; ".join([*[f"Run {run}"] * bool(run), *sorted(where)]),
        _NOTE.strip(),
        in_columns(_COLUMNS, cells, "github"),
        f"ncu gave no number of {', '.join(f'`{name}`' for name in unknown)}." if unknown and measured else "",
        "\n".join(f"- {row.kernel} on {row.problem}: not measured: {row.reason}" for row in rows if row.reason),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _cells(row: Row, counts: Mapping[str, int | None]) -> Iterator[Sequence[str]]:
    for name, figure in FIGURES.items():
        measured, counted = row.measured(figure), counts.get(name)
        if measured is None or (figure.if_counted and not counted):
            continue
        if measured or counted:
            ratio = f"{measured / counted:.3f}" if counted else ""
            numbers = ("" if number is None else f"{number:,}" for number in (measured, counted))
            yield row.kernel, row.problem, name, *numbers, ratio


def sanitizer(kernels: Sequence[str], until_s: float) -> list[Check]:
    """Check kernels with memcheck and racecheck until the deadline (monotonic clock).

    Each kernel is launched on the smallest problem of its emulator sweep, and on the largest ragged one, which has
    enough threads for races. The caller holds the GPU's lock. Checks that were not made are listed with the reason.
    """
    checks: list[Check] = []
    registry, refused = discover(), ""
    for name in kernels:
        kernel = _hand_written(registry, name)
        taken = sorted(problems(kernel, registry.operations[kernel.op]), key=lambda problem: problem.footprint_bytes)
        chosen = (taken[0].id, next((each.id for each in reversed(taken) if not is_whole(each)), taken[-1].id))
        for tool in ("memcheck", "racecheck"):
            command = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", *_launching(name, *chosen)]
            ran = (-1, refused) if refused else _run(command, until_s)
            checks.append(checked((name, " and ".join(chosen)), tool, *ran))
            refused = _refused(checks[-1].reason) if checks[-1].errors is None else ""
    return checks


def checked(pair: Pair, tool: str, status: int, text: str) -> Check:
    """Return the number of errors in compute-sanitizer's summary, with the first finding as the reason."""
    report = [line.removeprefix("=========").strip() for line in text.splitlines() if line.startswith("=========")]
    others = [line.strip() for line in text.splitlines() if not line.startswith(("=========", _DEVICE))]
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    errors = int(summary[1]) if summary else 0
    first = next((line for line in report if line not in ("COMPUTE-SANITIZER", "") and "SUMMARY" not in line), "")
    if not summary or "ot supported" in text or (status and not errors):
        return Check(*pair, tool, None, first or next(filter(None, reversed(others)), "no summary"))
    return Check(*pair, tool, errors, first if errors else "")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="counters.py", description="Read the counters of kernels, or check kernels.")
    parser.add_argument("--launch", nargs="+", metavar="KERNEL PROBLEM", help="launch a kernel once on each problem")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="read counters; write them to this folder")
    parser.add_argument("--table", type=Path, metavar="FOLDER", help="write the table of a folder again")
    parser.add_argument("--sanitizer", nargs="+", default=[], metavar="KERNEL", help="check these kernels")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, metavar="S", help="seconds for everything")
    options = parser.parse_args(words)
    until_s = now() + options.deadline
    try:
        if options.launch:
            kernel, *chosen = options.launch
            for problem in chosen:
                launch_alone(kernel, problem)
            return 0
        with exclusive(("cuda",), shared=False):
            rows = counters(until_s, options.out) if options.out else []
            checks = sanitizer(options.sanitizer, until_s)
    except UsageError as error:
        sys.stderr.write(f"counters.py: {error}\n")
        return 2
    if folder := options.table:
        rows = msgspec.json.decode((folder / DATA).read_bytes(), type=list[Row])
    if folder := options.out or options.table:
        (folder / "counters.md").write_text(table(rows))
    sys.stdout.write("".join(f"{check.line}\n" for check in checks))
    return 1 if any(check.errors for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
