"""Run a registered CUDA kernel in the emulator: the plans that a GPU would launch, checked access by access."""

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from kernelmark.bench.emulator.build import CUDA, HostCompileError, program
from kernelmark.bench.emulator.report import Diagnostic, unwaived
from kernelmark.bench.emulator.shapes import has_whole_rows, is_long, is_whole, problems
from kernelmark.bench.emulator.worker import LIMIT_S, ORDERS, Buffer, Im2col, Launch, Outcome, run
from kernelmark.bench.emulator.worker import EmulatedTensorMap as EmulatedMap
from kernelmark.bench.measure.draw import drawn
from kernelmark.bench.measure.tensormap import extents, spanned
from kernelmark.bench.plan.dtypes import DTYPES, bits_dtype, numpy_dtype
from kernelmark.bench.plan.kernel import CudaKernel, Im2colMap, KernelCall, Scratch, TensorMap, Tile
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Operand, Problem
from kernelmark.bench.plan.registry import Registry

Array = np.ndarray[Any, Any]
#: A larger operand has only its rows in memory. No problem of the sweep comes near.
HELD_BYTES = 2**30


@dataclass(frozen=True)
class EmulatedCase:
    """One kernel, problem and tile: one worker process runs it under every order of threads.

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
        few = "" if self.device == H100 else f"{self.device.multiprocessors}sms"
        return "/".join(filter(None, [Path(self.kernel.source).name, self.problem.id, tile, few]))

    @property
    def calls(self) -> list[tuple[str, KernelCall]]:
        """The launches, each with its name expression."""
        return self.kernel.calls(self.problem, self.tile, self.device)


def cases(registry: Registry, kernel: CudaKernel, device: DeviceLimits = H100) -> list[EmulatedCase]:
    """Return all problems under a run's tile, and a few under each other tile, so that each is checked."""
    taken = problems(kernel, registry.operations[kernel.op])
    default = [EmulatedCase(kernel, p, tile, device) for p in taken if (tile := kernel.tile_for(p, device))]
    more = (
        EmulatedCase(kernel, p, tile, device)
        for tile in kernel.tiles(device)
        for p in _few(kernel, taken, tile, device)
    )
    cases_ = default + [case for case in more if case not in default]
    return cases_ + list(_in_rounds(kernel, taken, device))


#: Rounds of a block that persists, operations and bytes of the problem that has them, and its products: an odd number.
ROUNDS, ROUNDS_WORK, BATCH = 3, 12_000_000, 7


def _in_rounds(kernel: CudaKernel, taken: list[Problem], device: DeviceLimits) -> Iterator[EmulatedCase]:
    """Yield cases on one multiprocessor, or on two, which a cluster wants, if the grid follows from their number.

    In the first, which is the smallest that does, blocks go round three times; the next has clusters; in the last one
    blocks share products, and the last block has fewer.
    """
    few = one, two = [replace(device, multiprocessors=count) for count in (1, 2)]
    many = replace(device, multiprocessors=2**14)
    ragged = sorted((p for p in taken if not is_whole(p) and not is_long(p)), key=lambda p: p.footprint_bytes) or taken
    long = [p for p in taken if is_long(p)][:1]
    for problem, on in itertools.product(_larger(kernel, long, ragged[-1:]), few):
        (blocks, names), (wanted, same) = (_launched(kernel, problem, there) for there in (on, many))
        if 0 < blocks * ROUNDS <= wanted and names == same:
            yield EmulatedCase(kernel, problem, kernel.tile_for(problem, on) or Tile(), on)
            small = next(_larger(kernel, [], ragged[:1]), problem)
            clusters = [tile for tile in kernel.tiles(two) if getattr(tile, "CLUSTER", 1) > 1]
            able = [tile for tile in clusters if kernel.unfit(small, tile, two) is None]
            yield from (
                EmulatedCase(kernel, small, t, two) for t in sorted(able, key=lambda t: getattr(t, "BN", 0))[:1]
            )
            break
    for problem in itertools.islice(_larger(kernel, [], ragged[len(ragged) // 4 :][:1]), 1):
        if "batch" in problem.axes() and 1 < _launched(kernel, problem, one)[0] < BATCH:
            yield EmulatedCase(kernel, problem, kernel.tile_for(problem, one) or Tile(), one)


def _launched(kernel: CudaKernel, problem: Problem, device: DeviceLimits) -> tuple[int, list[str]]:
    """Return the blocks of the largest launch, 0 where one has none or no tile takes the problem, and the entries."""
    tile = kernel.tile_for(problem, device)
    calls = kernel.calls(problem, tile, device) if tile else []
    blocks = [math.prod(extents(call.grid)) for _, call in calls]
    return max(blocks, default=0) if all(blocks) else 0, [name for name, _ in calls]


def _larger(kernel: CudaKernel, long: list[Problem], ragged: list[Problem]) -> Iterator[Problem]:
    """Yield the problems in batches, then with sizes doubled again and again, as far as the kernel takes them."""
    found = [(p, {"batch": ROUNDS}) for p in long] + [(p, {"batch": BATCH}) for p in ragged]
    found = [(p, values) for p, values in found if "batch" in p.axes()]
    found += [(p, {name: getattr(p, name) << i for name in p.sizes}) for p in ragged for i in range(8)]
    for problem, values in found:
        try:
            larger = msgspec.structs.replace(problem, **values)
        except ValueError:
            continue
        if larger.flop + larger.traffic_bytes <= ROUNDS_WORK and not kernel.refuses(larger):
            yield larger


def _few(kernel: CudaKernel, taken: list[Problem], tile: Tile, device: DeviceLimits) -> Iterator[Problem]:
    """Yield the largest ragged problem and the largest of whole vectors for each storage type, layout and direction.

    Where no ragged problem fits the tile, the largest of any kind stands in. Long problems take seconds, so there is
    one for the whole tile, enough for its ring of stages to wrap around, and not one for each variant.
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
    """Return the name expressions that the cases need, so that one compilation serves them all."""
    names = (name for case in all_cases for name, _ in case.calls)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Defect:
    """One fault of a kernel in a case, under one order of threads: a report, or a wrong result."""

    case: EmulatedCase
    order: str
    report: Diagnostic | None
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.case.id} {self.order}: {self.report or f'wrong: {self.reason}'}"


def complaints(case: EmulatedCase, names: tuple[str, ...], cuda: Path = CUDA, limit_s: int = LIMIT_S) -> Iterator[str]:
    """Yield the results of `findings` as text, each with its case and order. Raises as it does."""
    return map(str, findings(case, names, cuda, limit_s))


def findings(case: EmulatedCase, names: tuple[str, ...], cuda: Path = CUDA, limit_s: int = LIMIT_S) -> Iterator[Defect]:
    """Yield the kernel's faults in this case: reports and wrong results, by order. Raises as `looks`."""
    for _, defects in looks(case, names, cuda, limit_s):
        yield from defects


def looks(
    case: EmulatedCase,
    names: tuple[str, ...],
    cuda: Path = CUDA,
    limit_s: int = LIMIT_S,
    sample: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[tuple[Outcome, list[Defect]]]:
    """Yield each run, one order after the other, with the kernel's faults in it.

    names: all entries to compile the source with. cuda: the folder of the sources. sample: the only clusters that run;
    their accesses are checked, and results are not. Raises HostCompileError if the source does not compile and
    WorkerError if the plan does not fit it.
    """
    rng = np.random.default_rng(zlib.crc32(case.problem.id.encode()))
    operands = case.problem.operands()
    buffers = {operand.name: _buffer(operand, rng) for operand in operands}
    views = {o.name: _view(o, buffers[o.name].data) for o in operands}
    reference = None if sample else case.problem.reference(views, rng)
    planned = [replace(launch, sample=sample) for launch in launches(case, buffers)]
    try:
        worker = program(cuda / case.kernel.source, names, include=cuda, arch=case.device.capability * 10)
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
    """Return inputs spread as those of a measurement, poison in the padding after each row and in what is not written.

    Where rows lie too far apart to be held with their padding, only they exist.
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
    """Yield the plan's launches, and add the scratch that they name to the buffers."""
    operands = {operand.name: operand for operand in case.problem.operands()}
    for name, call in case.calls:
        for arg in call.args:
            if isinstance(arg, Scratch):
                buffers[arg.name] = scratch(arg)
        args = tuple(_argument(arg, operands) for arg in call.args)
        yield Launch(name, call.grid, call.block, args, call.shared_bytes, case.kernel.cooperative, call.cluster)


def _argument(arg: Any, operands: dict[str, Operand]) -> Any:
    if isinstance(arg, Scratch):
        return arg.name
    if isinstance(arg, TensorMap | Im2colMap):
        return _tensor_map(arg, operands[arg.operand])
    return arg


def _tensor_map(wanted: TensorMap | Im2colMap, operand: Operand) -> EmulatedMap:
    itemsize = DTYPES[operand.dtype].itemsize
    lengths = (*operand.shape[1:-1], operand.ld)
    strides = [itemsize * math.prod(lengths[axis:]) for axis in range(len(lengths))]
    swizzle = 0 if wanted.swizzle == "none" else int(wanted.swizzle.removesuffix("B"))
    box = (wanted.box[1], wanted.box[0])
    if isinstance(wanted, Im2colMap):
        corners = (wanted.lower[::-1], wanted.upper[::-1], wanted.stride[::-1])
        images = (operand.shape[::-1], tuple(strides[::-1]), box, itemsize, swizzle)
        return EmulatedMap(operand.name, *images, im2col=Im2col(*corners))
    sizes, pitches = spanned(wanted.rows, operand.shape, [*strides, itemsize])
    return EmulatedMap(operand.name, tuple(sizes), tuple(pitches), box, itemsize, swizzle, wanted.tf32)
