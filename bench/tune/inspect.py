"""Compute the resources of hand-written kernels from the compiler's report, without a GPU."""

import csv
import io
import json
import math
import re
import typing
from collections import Counter
from collections.abc import Sequence
from itertools import chain, groupby, islice
from typing import Literal

import msgspec

from kernelmark.bench.measure.compile import ARCHS, compile_cubin, in_parallel
from kernelmark.bench.measure.occupancy import Limiter, occupancy, typical
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Kernel, Tile, tiled
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.space import Space
from kernelmark.bench.plan.text import as_json
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.report.layout import TableColumn, paragraph, table

#: The maximum number of a kernel's tiles that are compiled. A kernel without `prefer` may have any number of tiles.
TILES = 64
#: The number of tiles that are compiled as one program; they share headers and often functions.
TOGETHER = 8


class InspectRow(msgspec.Struct, frozen=True):
    """The resources of one function of a kernel, with one tile on one architecture.

    spill_bytes: bytes of spill stores plus spill loads. occupancy: resident warps divided by the maximum, 0 to 1.
    """

    kernel: str
    tunables: str
    arch: str
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    spill_bytes: int
    stack_bytes: int
    threads: int
    blocks_per_sm: int
    occupancy: float
    limiter: Limiter
    entry: str
    problem: str
    compiler: str


def inspect_rows(registry: Registry, glob: str = "*", archs: Sequence[str] = ARCHS) -> list[InspectRow]:
    """Return a row for each matching hand-written kernel, each architecture that it supports and each tile.

    Launches are planned for a typical device of the architecture.

    Raises UsageError if nothing matches or an architecture is unknown, CompileError (a UsageError) if a .cu file does
    not compile, Unsupported without a compiler.
    """
    for arch in archs:
        typical(arch)  # raises UsageError if it is unknown
    handwritten = (kernel for kernel in registry.kernels.values() if isinstance(kernel, CudaKernel))
    kernels = [chosen for kernel in handwritten for chosen in tiled(kernel, (glob,))]
    if not kernels:
        lists = "`kernelmark list --device cuda` lists them"
        raise UsageError(f"kernels {glob!r}: matches no hand-written kernel; {lists}")
    wanted = []
    for kernel in sorted(kernels, key=lambda k: k.id):
        problems = sample_problems(kernel, registry.problem_class(kernel.op, kernel.id))
        for arch in filter(kernel.runs_on, archs):
            launched, device = list[tuple[Problem, Tile]](), typical(arch)
            for tile in islice(kernel.tiles(device), TILES):
                if problem := next((p for p in problems if kernel.unwanted(p, tile, device) is None), None):
                    launched.append((problem, tile))
            wanted += [(kernel, launched[i : i + TOGETHER], arch) for i in range(0, len(launched), TOGETHER)]
    return [row for rows in in_parallel(lambda words: launch_rows(*words), wanted) for row in rows]


def tile_rows(kernel: Kernel, problem: Problem, archs: Sequence[str]) -> list[InspectRow]:
    """Return a row per launch and architecture for the tile that a run uses; [] for a kernel without a .cu file.

    An architecture is left out if its typical device cannot run the problem. Raises UsageError if no device can.
    """
    devices = {arch: typical(arch) for arch in archs}
    if isinstance(kernel, CudaKernel):
        devices = {arch: device for arch, device in devices.items() if kernel.runs_on(arch)}
    reasons = [kernel.refuses(problem, device) for device in devices.values()]
    if reasons and all(reasons):
        raise UsageError(f"{reasons[0]}; choose another problem")
    if not isinstance(kernel, CudaKernel):
        return []
    tiles = ((arch, kernel.tile_for(problem, device)) for arch, device in devices.items())
    return [row for arch, tile in tiles if tile for row in launch_rows(kernel, [(problem, tile)], arch)]


def space_text(kernel: Kernel, problem: Problem, device: DeviceLimits) -> str:
    """Return text: how many tiles the kernel can have, how many are valid for the problem, and why the others fail."""
    if not kernel.tunables:
        return f"{kernel.id} has no tunables"
    tiles, tile = Space(kernel, problem, device).count(), kernel.tile_for(problem, device)
    about = "" if tiles.exact else "about "
    head = f"{problem.id}: {tiles.size:,} tiles, {about}{tiles.valid:,} valid"
    if tile is not None:
        head += f"; a run uses {kernel.base_id}@{tile_text(vars(tile))}"
    reasons = [(f"{about}{count:,}", reason) for reason, count in tiles.refused.items()]
    columns = (TableColumn("tiles", "right"), TableColumn("why not valid, for example"))
    return "\n".join([paragraph(head), *([table(columns, reasons, titled=True)] if reasons else [])])


def sample_problems(kernel: CudaKernel, problem_class: type[Problem]) -> list[Problem]:
    """Return typical problems that the kernel takes, with its domain's first value on each axis. Raises UsageError."""
    axes = {axis: values[0] for axis, values in kernel.domain.items()}
    for field in msgspec.structs.fields(problem_class):
        if field.required and field.name not in (*axes, *problem_class.sizes):
            axes[field.name] = typing.get_args(field.type)[0] if typing.get_origin(field.type) is Literal else 1
    problems = [problem_class.make({**values, **axes}, kernel.id) for values in problem_class.typical()]
    if taken := [problem for problem in problems if kernel.refuses(problem) is None]:
        return taken
    raise UsageError(f"{kernel.id}: takes none of the {len(problems)} typical problems of {problem_class.op}")


def launch_rows(
    kernel: CudaKernel, launched: Sequence[tuple[Problem, Tile]], arch: str, device: DeviceLimits | None = None
) -> list[InspectRow]:
    """Return a row for each different launch on these problems with these tiles, in order. Raises CompileError.

    device: the device to plan launches for; by default a typical one of the architecture.
    """
    plans = [dict(kernel.calls(problem, tile, device or typical(arch))) for problem, tile in launched]
    cubin = compile_cubin(kernel.source, tuple(dict.fromkeys(chain.from_iterable(plans))), arch, kernel.id)
    rows = []
    for (problem, tile), calls in zip(launched, plans, strict=True):
        for entry, call in calls.items():
            used, threads = cubin.resources[entry], math.prod(extents(call.block))
            shared = used.static_shared_bytes + call.shared_bytes
            row = InspectRow(
                kernel=kernel.id,
                tunables=as_json(vars(tile)) if vars(tile) else "",
                arch=arch,
                registers=used.registers,
                static_shared_bytes=used.static_shared_bytes,
                dynamic_shared_bytes=call.shared_bytes,
                spill_bytes=used.spill_bytes,
                stack_bytes=used.stack_bytes,
                threads=threads,
                entry=entry,
                problem=problem.id,
                compiler=cubin.compiler,
                **msgspec.structs.asdict(occupancy(typical(arch), threads, used.registers, shared)),
            )
            rows.append(row)
    return rows


def render(rows: Sequence[InspectRow], style: str) -> str:
    """Return the rows as a `table`, as `csv` or as `json`."""
    if style == "json":
        return json.dumps(msgspec.to_builtins(rows), indent=2)
    if style == "csv":
        out = io.StringIO()
        lines = [InspectRow.__struct_fields__, *map(msgspec.structs.astuple, rows)]
        csv.writer(out, lineterminator="\n").writerows(lines)
        return out.getvalue()
    return table(COLUMNS, cells(rows), titled=True)


COLUMNS = (
    TableColumn("kernel and tile"),
    TableColumn("arch"),
    TableColumn("registers", "right"),
    TableColumn("static", "right", spare=4),
    TableColumn("dynamic", "right", spare=3),
    TableColumn("spill", "right"),
    TableColumn("stack", "right", spare=5),
    TableColumn("threads", "right", spare=2),
    TableColumn("blocks/SM", "right", spare=1),
    TableColumn("occupancy", "right"),
    TableColumn("limited by"),
)


def summary(rows: Sequence[InspectRow]) -> str:
    """Return a table with a line for each kernel, with ranges over tiles and architectures.

    rows: sorted by kernel. Tiles that differ only in their number of multiprocessors (SMS) count as one.
    """
    columns = (
        TableColumn("kernel"),
        TableColumn("tiles", "right"),
        TableColumn("architectures", spare=1),
        TableColumn("registers", "right"),
        TableColumn("spill", "right"),
        TableColumn("occupancy", "right"),
    )

    def span(values: Sequence[int]) -> str:
        return "..".join(dict.fromkeys(map(str, (min(values), max(values)))))

    lines = []
    for kernel, group in groupby(rows, key=lambda row: row.kernel):
        group_rows = list(group)
        archs = list(dict.fromkeys(row.arch for row in group_rows))
        numbers = span([row.registers for row in group_rows]), span([row.spill_bytes for row in group_rows])
        tiles = str(len({re.sub(r',?"SMS":\d+', "", row.tunables) for row in group_rows}))
        shares = span([round(100 * row.occupancy) for row in group_rows]) + "%"
        lines.append((kernel, tiles, "..".join(dict.fromkeys((archs[0], archs[-1]))), *numbers, shares))
    return table(columns, lines)


def cells(rows: Sequence[InspectRow]) -> list[Sequence[str]]:
    """Return each row's cells for COLUMNS. The first cell also names the function if the kernel launches several."""
    launches, lines = Counter((row.kernel, row.tunables, row.arch) for row in rows), list[Sequence[str]]()
    for row in rows:
        sizes = (row.registers, row.static_shared_bytes, row.dynamic_shared_bytes, row.spill_bytes, row.stack_bytes)
        numbers = map(str, (*sizes, row.threads, row.blocks_per_sm))
        tile = tile_text(json.loads(row.tunables or "{}"))
        kernel = f"{row.kernel.partition('@')[0]}@{tile}" if tile else row.kernel
        function = f": {row.entry.partition('<')[0]}" if launches[row.kernel, row.tunables, row.arch] > 1 else ""
        lines.append((kernel + function, row.arch, *numbers, f"{row.occupancy:.0%}", row.limiter))
    return lines
