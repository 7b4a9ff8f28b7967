"""Run a registered CUDA kernel in the emulator, planned as for a GPU, and check every access."""

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from kernelmark.bench.emulator.build import CUDA, HostCompileError, program
from kernelmark.bench.emulator.report import Diagnostic, unwaived
from kernelmark.bench.emulator.shapes import has_whole_rows, is_long, is_whole, problems
from kernelmark.bench.emulator.worker import LIMIT_S, ORDERS, Buffer, EmulatedTensorMap, Im2col, Launch, Outcome, run
from kernelmark.bench.measure.draw import drawn
from kernelmark.bench.measure.tensormap import extents, spanned
from kernelmark.bench.plan.dtypes import DTYPES, bits_dtype, numpy_dtype
from kernelmark.bench.plan.kernel import CudaKernel, Im2colMap, KernelCall, Scratch, TensorMap, Tile
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Operand, Problem
from kernelmark.bench.plan.registry import Registry

Array = np.ndarray[Any, Any]
#: The padding of an operand larger than this is not held in memory. No problem of the sweep is nearly as large.
HELD_BYTES = 2**30


@dataclass(frozen=True)
class EmulatedCase:
    """A kernel, problem and tile, which one worker process runs under every order of threads.

    device: the device that the launches are planned for.
    """

    kernel: CudaKernel
    problem: Problem
    tile: Tile
    device: DeviceLimits = H100

    @property
    def id(self) -> str:
        """Return `tiled.cu/gemm/m33n31k17/f32/NT/T16`: the file's base name first."""
        tile = "".join(f"{name}{value}" for name, value in vars(self.tile).items())
        multiprocessors = "" if self.device == H100 else f"{self.device.multiprocessors}sms"
        return "/".join(filter(None, [Path(self.kernel.source).name, self.problem.id, tile, multiprocessors]))

    @cached_property
    def calls(self) -> list[tuple[str, KernelCall]]:
        """Return the launches, each with its name expression."""
        return self.kernel.calls(self.problem, self.tile, self.device)


def cases(registry: Registry, kernel: CudaKernel, device: DeviceLimits = H100) -> list[EmulatedCase]:
    """Return cases: all problems with the default tile, a few with each other tile, a few with persistent blocks."""
    taken = problems(kernel, registry.operations[kernel.op])
    default = [EmulatedCase(kernel, p, tile, device) for p in taken if (tile := kernel.tile_for(p, device))]
    pairs = ((p, tile) for tile in kernel.tiles(device) for p in _largest(kernel, taken, tile, device))
    more = (EmulatedCase(kernel, p, tile, device) for p, tile in pairs)
    return [*default, *(case for case in more if case not in default), *_in_rounds(kernel, taken, device)]


#: The rounds that a persistent block takes, the most operations plus bytes of such a problem, and an odd batch size.
ROUNDS, ROUNDS_WORK, BATCH = 3, 12_000_000, 7


def _in_rounds(kernel: CudaKernel, taken: list[Problem], device: DeviceLimits) -> Iterator[EmulatedCase]:
    """Yield cases in which a block does several rounds of work, planned for one multiprocessor (two for clusters).

    Each `__global__` function gets a case with three rounds. Further cases have: clusters; so many rounds that a block
    goes twice around its ring of pipeline stages; sums so long that more multiprocessors would split them; a batch
    whose products are divided among blocks so that the last block gets fewer.
    """
    one, two = (replace(device, multiprocessors=count) for count in (1, 2))
    ragged = sorted((p for p in taken if not is_whole(p) and not is_long(p)), key=lambda p: p.footprint_bytes) or taken
    long = [p for p in taken if is_long(p)]
    rings = [tile for tile in kernel.tiles(one) if getattr(tile, "STAGES", 1) > 1 and not long]
    if list(kernel.tiles(one)) == list(kernel.tiles(device)) and "BLOCKS" not in kernel.tunables and not rings:
        return  # the same number of blocks on any device
    yield from _by_function(kernel, long[:1], ragged, (one, two))
    clusters = sorted((t for t in kernel.tiles(two) if getattr(t, "CLUSTER", 1) > 1), key=lambda t: getattr(t, "BN", 0))
    yield from _first_round(kernel, clusters, ragged[:1], two, ROUNDS)
    for ring, every in itertools.product(rings[:1], (False, True)):
        yield from _first_round(kernel, [ring], ragged[-1:], one, 2 * ring.STAGES, every)
    deep = [p for p in long if p.emulated_sizes().deep][:1]
    yield from (EmulatedCase(kernel, p, tile, one) for p in deep if (tile := kernel.tile_for(p, one)))
    for problem in itertools.islice(_larger(kernel, [], ragged[len(ragged) // 4 :][:1]), 1):
        if "batch" in problem.axes() and 1 < max(_launched(kernel, problem, one)[0], default=0) < BATCH:
            yield EmulatedCase(kernel, problem, kernel.tile_for(problem, one) or Tile(), one)


def _by_function(
    kernel: CudaKernel, long: list[Problem], ragged: list[Problem], devices: tuple[DeviceLimits, ...]
) -> Iterator[EmulatedCase]:
    """Yield each function's smallest case of several rounds, enlarged from the largest problem that launches it."""
    seen: set[str] = set()
    for largest in reversed(ragged):
        functions = {name.partition("<")[0] for name in _launched(kernel, largest, devices[0])[1]}
        if not seen.issuperset(functions):
            pairs = itertools.product(_larger(kernel, [] if seen else long, [largest]), devices)
            fewest = (case for problem, on in pairs if (case := _fewest(kernel, problem, on)))
            yield from itertools.islice(filter(_goes_round, fewest), 1)
            seen |= functions


def _first_round(
    kernel: CudaKernel, tiles: list[Tile], ragged: list[Problem], device: DeviceLimits, rounds: int, every: bool = False
) -> Iterator[EmulatedCase]:
    """Yield the smallest case in which the blocks of one of these tiles take this many rounds, if there is any."""
    larger = _larger(kernel, [], ragged) if tiles else ()
    candidates = (EmulatedCase(kernel, problem, tile, device) for problem, tile in itertools.product(larger, tiles))
    fit = (case for case in candidates if kernel.unfit(case.problem, case.tile, device) is None)
    yield from itertools.islice((case for case in fit if _goes_round(case, rounds, every)), 1)


def _fewest(kernel: CudaKernel, problem: Problem, device: DeviceLimits) -> EmulatedCase | None:
    """Return a case with the tile that a run would use, changed to launch the fewest blocks; None if no tile fits."""
    if (tile := kernel.tile_for(problem, device)) is None:
        return None
    alike = (other for other in kernel.tiles(device) if {**vars(other), **_blocks(tile)} == vars(tile))
    able = [other for other in alike if kernel.unfit(problem, other, device) is None]
    return EmulatedCase(kernel, problem, min(able, key=lambda t: getattr(t, "BLOCKS", 0), default=tile), device)


def _blocks(tile: Tile, most: int | None = None) -> dict[str, int]:
    """Return the tunables of a tile that limit the number of blocks, with their values or all with the value `most`."""
    return {name: most or value for name, value in vars(tile).items() if name in ("SMS", "BLOCKS")}


def _goes_round(case: EmulatedCase, rounds: int = ROUNDS, every: bool = False) -> bool:
    """Return whether the largest (or `every`) launch would have `rounds` times as many blocks on a huge device."""
    most = 2**14
    wide, many = Tile(**vars(case.tile) | _blocks(case.tile, most)), replace(case.device, multiprocessors=most)
    count, names = _launched(case.kernel, case.problem, case.device, case.tile)
    wanted, same = _launched(case.kernel, case.problem, many, wide)
    if names != same or not all(count):
        return False
    pairs = zip(count, wanted, strict=True) if every else [(max(count), max(wanted))]
    return all(blocks * rounds <= more for blocks, more in pairs)


def _launched(
    kernel: CudaKernel, problem: Problem, device: DeviceLimits, tile: Tile | None = None
) -> tuple[list[int], list[str]]:
    """Return the number of blocks and the entry of each launch; none if no tile takes the problem."""
    tile = tile or kernel.tile_for(problem, device)
    calls = kernel.calls(problem, tile, device) if tile else []
    return [math.prod(extents(call.grid)) for _, call in calls], [name for name, _ in calls]


def _larger(kernel: CudaKernel, long: list[Problem], ragged: list[Problem]) -> Iterator[Problem]:
    """Yield the problems with a larger `batch`, if they have one, then larger ragged problems, the cheapest first.

    The ragged problems have one size, or all sizes, multiplied by a power of two. Problems that the kernel refuses are
    left out.
    """
    batches = [(p, {"batch": ROUNDS}) for p in long] + [(p, {"batch": BATCH}) for p in ragged]
    yield from _changed(kernel, [(p, values) for p, values in batches if "batch" in p.axes()])
    ways = [(p, names) for p in ragged for names in (p.sizes, *((name,) for name in p.sizes))]
    grown = [(p, {name: getattr(p, name) << i for name in names}) for p, names in ways for i in range(8)]
    yield from sorted(dict.fromkeys(_changed(kernel, grown)), key=lambda p: p.flop + p.traffic_bytes)


def _changed(kernel: CudaKernel, wanted: list[tuple[Problem, dict[str, int]]]) -> Iterator[Problem]:
    for problem, values in wanted:
        try:
            changed = msgspec.structs.replace(problem, **values)
        except ValueError:
            continue
        if changed.flop + changed.traffic_bytes <= ROUNDS_WORK and not kernel.refuses(changed):
            yield changed


def _largest(kernel: CudaKernel, taken: list[Problem], tile: Tile, device: DeviceLimits) -> Iterator[Problem]:
    """Yield the largest ragged problem and the largest with whole vectors, for each storage type, layout and direction.

    If no ragged problem fits the tile, the largest of any kind is used. At the end, yield a single long problem, which
    goes around the tile's ring of pipeline stages; one for each type and layout would take too many seconds.
    """
    groups: dict[tuple[Any, ...], list[Problem]] = {}
    for problem in taken:
        if kernel.unwanted(problem, tile, device) is None:
            variant = (problem.dtype, getattr(problem, "layout", None), getattr(problem, "direction", None))
            groups.setdefault(variant, []).append(problem)
    for group in groups.values():
        ragged = sorted(group, key=lambda p: (not is_long(p), not is_whole(p), p.footprint_bytes))
        vectors = [problem for problem in ragged if has_whole_rows(problem)]
        yield from dict.fromkeys([ragged[-1], *vectors[-1:]])
    long = [problem for group in groups.values() for problem in group if is_long(problem)]
    yield from sorted(long, key=lambda problem: problem.footprint_bytes)[:1]


def entries(all_cases: list[EmulatedCase]) -> tuple[str, ...]:
    """Return the name expressions of all cases' kernels, which are compiled into one program."""
    names = (name for case in all_cases for name, _ in case.calls)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Defect:
    """A fault of a kernel in a case under one order of threads: a report, or a wrong result."""

    case: EmulatedCase
    order: str
    report: Diagnostic | None
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.case.id} {self.order}: {self.report or f'wrong: {self.reason}'}"


def complaints(case: EmulatedCase, names: tuple[str, ...], cuda: Path = CUDA, limit_s: int = LIMIT_S) -> Iterator[str]:
    """Yield the kernel's faults in this case as text: reports and wrong results. Raises the errors of `looks`."""
    for _, defects in looks(case, names, cuda, limit_s):
        yield from map(str, defects)


def looks(
    case: EmulatedCase,
    names: tuple[str, ...],
    cuda: Path = CUDA,
    limit_s: int = LIMIT_S,
    sample: Mapping[int, int] = MappingProxyType({}),
    trips: bool = False,
) -> Iterator[tuple[Outcome, list[Defect]]]:
    """Run a case under each order of threads, and yield each run's outcome with the kernel's faults.

    names: all entries to compile the source with. cuda: the folder of the sources. sample: run only these clusters, and
    check their accesses but no results. trips: count iterations of loops. Raises HostCompileError if the source does
    not compile, and WorkerError if the plan does not fit the source.
    """
    rng = np.random.default_rng(zlib.crc32(case.problem.id.encode()))
    operands = case.problem.operands()
    buffers = {operand.name: _buffer(operand, rng) for operand in operands}
    views = {o.name: _view(o, buffers[o.name].data) for o in operands}
    reference = None if sample else case.problem.reference(views, rng)
    planned = [replace(launch, sample=sample) for launch in launches(case, buffers)]
    try:
        worker = program(cuda / case.kernel.source, names, include=cuda, trips=trips, arch=case.device.capability * 10)
    except HostCompileError as error:
        raise HostCompileError(f"{case.kernel.id}: {error}") from None
    for outcome in run(worker, buffers, planned, orders=ORDERS, limit_s=limit_s):
        reports = [report for report in unwaived(outcome.reports) if not sample or report.kind != "not-written"]
        defects = [Defect(case, outcome.order, report) for report in reports]
        if not sample and (reason := _verdict(case, outcome, operands, reference)):
            defects.append(Defect(case, outcome.order, None, reason))
        yield outcome, defects


def _verdict(case: EmulatedCase, outcome: Outcome, operands: tuple[Operand, ...], reference: Any) -> str | None:
    outputs = {o.name: _view(o, outcome.outputs[o.name]) for o in operands if o.role != "in"}
    return case.problem.check(outputs, reference, case.kernel.numerics_for(case.problem)).reason


def _buffer(operand: Operand, rng: "np.random.Generator") -> Buffer:
    """Return an operand's buffer: inputs drawn as for a measurement, poison in outputs and after each row.

    The padding of an operand larger than `HELD_BYTES` is left out.
    """
    rows, size = math.prod(operand.shape[:-1]), DTYPES[operand.dtype].itemsize
    apart = operand.nbytes > HELD_BYTES
    width = operand.shape[-1] if apart else operand.ld
    data = np.full(rows * width, DTYPES[operand.dtype].poison, bits_dtype(operand.dtype))
    data = data.view(numpy_dtype(operand.dtype))
    if operand.role != "out":
        _view(operand, data)[...] = drawn(rng, operand.shape, operand)
    places = tuple(range(0, operand.nbytes, operand.ld * size)) if apart else (0,)
    return Buffer(operand.role, data, operand.shape[-1], operand.pad, places)


def _view(operand: Operand, data: Array) -> Array:
    """Return a view of the elements without the padding, if there is any."""
    return data.reshape(*operand.shape[:-1], -1)[..., : operand.shape[-1]]


def _scratch(wanted: Scratch) -> Buffer:
    return Buffer("scratch", np.full(wanted.nbytes, 0xFF, np.uint8))


def launches(
    case: EmulatedCase, buffers: dict[str, Buffer], scratch: Callable[[Scratch], Buffer] = _scratch
) -> Iterator[Launch]:
    """Yield the launches of a case, and add the scratch buffers that they use to `buffers`."""
    operands = {operand.name: operand for operand in case.problem.operands()}
    made = set[Scratch]()
    for name, call in case.calls:
        for arg in call.args:
            if isinstance(arg, Scratch) and arg not in made:
                buffers[arg.name] = scratch(arg)
                made.add(arg)
        args = tuple(_argument(arg, operands) for arg in call.args)
        yield Launch(name, call.grid, call.block, args, call.shared_bytes, case.kernel.cooperative, call.cluster)


def _argument(arg: Any, operands: dict[str, Operand]) -> Any:
    if isinstance(arg, Scratch):
        return arg.name
    if isinstance(arg, TensorMap | Im2colMap):
        return _tensor_map(arg, operands[arg.operand])
    return arg


def _tensor_map(wanted: TensorMap | Im2colMap, operand: Operand) -> EmulatedTensorMap:
    itemsize = DTYPES[operand.dtype].itemsize
    lengths = (*operand.shape[1:-1], operand.ld)
    strides = [itemsize * math.prod(lengths[axis:]) for axis in range(len(lengths))]
    swizzle = 0 if wanted.swizzle == "none" else int(wanted.swizzle.removesuffix("B"))
    box = (wanted.box[1], wanted.box[0])
    if isinstance(wanted, Im2colMap):
        corners = (wanted.lower[::-1], wanted.upper[::-1], wanted.stride[::-1])
        images = (operand.shape[::-1], tuple(strides[::-1]), box, itemsize, swizzle)
        return EmulatedTensorMap(operand.name, *images, im2col=Im2col(*corners))
    sizes, pitches = spanned(wanted.rows, operand.shape, [*strides, itemsize])
    return EmulatedTensorMap(operand.name, tuple(sizes), tuple(pitches), box, itemsize, swizzle, wanted.tf32)
