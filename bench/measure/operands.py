"""Lay out operands between guards; poison, restore and pass them to kernels. draw.py draws their values."""

from collections.abc import Iterator, Mapping
from copy import copy
from functools import partial
from itertools import cycle, repeat
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.measure.device import Device, Memory
from kernelmark.bench.measure.draw import Change, Draw, logical, padding, poison
from kernelmark.bench.measure.launch import cuda_launch
from kernelmark.bench.measure.memory import page_faults, read_by_system
from kernelmark.bench.measure.multi_gpu import parts_of
from kernelmark.bench.plan.dtypes import DTYPES, Array, bits_dtype, numpy_dtype
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import CudaKernel, Kernel, Launch, Tile
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import REGISTRY

#: Bytes of the guard on each side of an operand: large enough to detect a kernel that overruns by a tile.
GUARD_BYTES = 2**16
#: Operands begin at a page. The operands of a moved set (`OperandSet.moved`) begin at a multiple of 16 bytes, as every
#: allocation does, but not at a cache line.
_PAGE_BYTES, _ALIGNED_BYTES, _LINE_BYTES = 4096, 16, 64
#: For outputs of fewer pages, copying is faster than mapping.
LEAST_PAGES = 16
#: A guard alternates between NaN and the largest number in FP32, FP64 or BF16. A kernel that reads it gets a wrong
#: result even if it drops NaN.
_GUARD = np.tile(np.array([0xFF] * 8 + [0xFF, 0xFF, 0x7F, 0x7F] * 2, np.uint8), (GUARD_BYTES + _PAGE_BYTES) // 16)


class Spots(NamedTuple):
    """A few elements of an output, at the indices `places` of `flat`, the output's buffer as unsigned integers.

    unwritten: the bits of a poisoned element, or None if the operand is also read. early: an entry for each call of
    `early_reads`: the position in `places` of the single element that the first function reads, and an array for the
    bits that are read, this element's first.
    """

    operand: str
    flat: Array
    places: Array
    unwritten: int | None
    early: list[tuple[int, Array]]

    def poison(self) -> None:
        """Poison the elements of an output that is not read."""
        if self.unwritten is not None:
            self.flat[self.places] = self.unwritten

    def early_reads(self) -> list[Launch]:
        """Return two functions that store elements for `is_late`: the first reads one of them, the second reads all.

        A kernel must not notice the reads. So neither runs Python code, which a trace function would see. If possible,
        the first reads by a system call, which raises no SIGSEGV if the kernel has protected the memory.
        """
        flat, elements = self.flat, np.empty(len(self.places) + 1, self.flat.dtype)
        number = int(self.places[0]) % len(self.places)
        self.early.append((number, elements))
        place = self.places[number : number + 1]
        address = flat.__array_interface__["data"][0] + flat.itemsize * int(place[0])
        first = read_by_system(address, elements[:1]) or partial(flat.take, place, None, elements[:1], "clip")
        return [first, partial(flat.take, self.places, None, elements[1:], "clip")]

    def has_changed(self) -> bool:
        """Return whether an element has changed since the functions from `early_reads` read it."""
        bits = self.flat[self.places]
        return any(elements[0] != bits[number] or bool((elements[1:] != bits).any()) for number, elements in self.early)

    def was_late(self) -> bool:
        """Return whether an element was written only after the early reads, even if it was overwritten since then."""
        if self.unwritten is None:
            return self.has_changed()
        bits = self.flat[self.places]
        return any(bool(((early[1:] == self.unwritten) & (bits != self.unwritten)).any()) for _, early in self.early)

    def is_late(self) -> bool:
        """Return whether an element is still poisoned or has changed."""
        return self.has_changed() or (
            self.unwritten is not None and bool((self.flat[self.places] == self.unwritten).any())
        )


class Place(NamedTuple):
    """Where operands are stored: the device, the kind of host memory, and whether they are spread over several GPUs."""

    device: str
    memory: str
    spread: bool = False


def place_of(kernel: Kernel, problem: Problem, device: Device) -> Place:
    """Return where a kernel's operands are stored; kernels whose places are equal share operands."""
    on_host = device.stream is None or any(operand.in_host for operand in problem.operands())
    return Place(device.name, kernel.host_memory if on_host else "", kernel.spread)


class OperandSet:
    """One copy of a problem's operands on a device, each between two guards.

    memory: the kind of host memory. spread: whether operands lie on several GPUs. guard: bytes of each guard; 0 lets
    compute-sanitizer find accesses beyond an operand's ends. Raises Unsupported if the device lacks the memory.
    """

    def __init__(
        self, problem: Problem, device: Device, memory: str = "", spread: bool = False, guard: int = GUARD_BYTES
    ) -> None:
        self._on_host = device.stream is None
        self.specs = {operand.name: operand for operand in problem.operands()}
        self._memory: dict[str, Memory] = {}
        self._raw: dict[str, Any] = {}
        #: The elements in which the inputs differ from the drawn values.
        self.change: Change = {}
        self._late: list[tuple[str, Array, Array]] = []
        self.flat: dict[str, Any] = {}
        for name, operand in self.specs.items():
            apart = bool(memory) if self._on_host else operand.in_host
            home: Memory = device.host_memory(memory) if apart else device
            if spread and operand.gpus != (0,):
                home = device.peers(operand.gpus, guard)
            self._memory[name] = home
            self._raw[name] = home.bytes(operand.nbytes + 2 * guard)
            self._raw[name].fill(0xFF)
        self._guard, self._offset = guard, 0
        self._place()
        self.fence()

    def moved(self, rng: "np.random.Generator") -> "OperandSet":
        """Return an OperandSet in the same memory, not aligned to cache lines; call `fence` and `load` before use."""
        moved = copy(self)
        lines, steps = rng.integers(_PAGE_BYTES // _LINE_BYTES), rng.integers(1, _LINE_BYTES // _ALIGNED_BYTES)
        moved._offset, moved.flat, moved.change = int(lines * _LINE_BYTES + steps * _ALIGNED_BYTES), {}, {}
        moved._place()
        return moved

    def _place(self) -> None:
        for name, operand in self.specs.items():
            start, home = self._guard + self._offset, self._memory[name]
            self.flat[name] = self._raw[name][start : start + operand.nbytes].view(home.dtype(operand.dtype))

    def _guards(self, name: str) -> tuple[Any, Any]:
        start, raw = self._guard + self._offset, self._raw[name]
        return raw[:start], raw[start + self.specs[name].nbytes :]

    def fence(self) -> None:
        """Write the guards."""
        for name, home in self._memory.items():
            for guard in self._guards(name) if self._guard else ():
                home.upload(guard, _GUARD[: guard.nbytes])

    def array(self, name: str, order: str) -> Any:
        """Return an operand as an array of its shape, or, if the operand lies on several GPUs, as a list of rows."""
        parts = parts_of(self.flat[name])
        return parts if len(parts) > 1 else logical(parts[0], self.specs[name], order)

    def load(self, draw: Draw) -> None:
        """Copy the drawn values into all operands."""
        self.change = {}
        for name, values in draw.flat.items():
            self._memory[name].upload(self.flat[name], values)

    def restore(self, draw: Draw) -> None:
        """Restore the inouts to the values that they had before any run."""
        for name in self._named("inout"):
            self._memory[name].upload(self.flat[name], draw.flat[name])
            if name in self.change:
                self._memory[name].scatter(self.flat[name], *self.change[name])

    def freshen(self, draw: Draw, change: Change) -> None:
        """Undo the last change of the inputs, then apply `change`. The inouts get `change` at the next `restore`."""
        with draw.holding(change):
            for name in self._named("in"):
                places = np.concatenate([changed[name][0] for changed in (self.change or change, change)])
                self._memory[name].scatter(self.flat[name], places, draw.flat[name][places])
        self.change, self._late = change, []

    def hold_back(self, draw: Draw) -> None:
        """Restore the old value of one changed element in each input and inout, until `complete` is called."""
        for name, (places, values) in self.change.items():
            self._memory[name].scatter(self.flat[name], places[-1:], draw.flat[name][places[-1:]])
            self._late.append((name, places[-1:], values[-1:]))

    def complete(self) -> None:
        """Write the elements held back, just before a timed call, so that no earlier call has seen these values."""
        while self._late:
            name, places, values = self._late.pop()
            self._memory[name].scatter(self.flat[name], places, values)

    def stirring(self, draw: Draw, spots: list[Spots]) -> Iterator[None]:
        """Yield before each call, after undoing or redoing the change of one input element and poisoning the spots.

        Inputs on a GPU stay unchanged, since writing to them would wait for the stream.
        """
        pairs = [
            (self.flat[name], place, value)
            for name in (self._named("in") if self._on_host else ())
            for place, new in zip(*self.change[name], strict=True)
            for value in (draw.flat[name][place], new)
        ]
        for flat, place, value in cycle(pairs):
            flat[place] = value
            for spot in spots:
                spot.poison()
            yield
        yield from repeat(None)

    def spoil(self, draw: Draw) -> None:
        """Overwrite a few elements of the outputs, which may still contain right results of another kernel."""
        for name in self._named("out"):
            self._memory[name].scatter(self.flat[name], *draw.scattered(self.specs[name]))

    @property
    def is_restored(self) -> bool:
        """Return whether an operand is both read and written, so that it is restored before each call."""
        return bool(self._named("inout"))

    def _named(self, role: str) -> list[str]:
        return [name for name, operand in self.specs.items() if operand.role == role]

    def poison(self) -> None:
        """Poison the outputs, padding included."""
        for name in self._named("out"):
            flat, operand, home = self.flat[name], self.specs[name], self._memory[name]
            poison(flat, operand.dtype)
            if operand.pad:
                written = home.download(flat)
                for gap, bits in padding(written, operand):
                    gap.fill(bits)
                home.upload(flat, written)

    def spots(self, draw: Draw) -> list[Spots]:
        """Return randomly drawn elements of each operand that a call writes, to be read as soon as the call returns.

        A kernel on the host may return while one of its threads is still writing. The list is empty on a GPU, which is
        synchronised before its outputs are read.
        """
        spots = []
        for operand in [self.specs[name] for name in self.written] if self._on_host else []:
            flat = self.flat[operand.name].view(bits_dtype(operand.dtype))
            unwritten = DTYPES[operand.dtype].poison if operand.role == "out" else None
            spots.append(Spots(operand.name, flat, draw.scattered(operand)[0], unwritten, []))
        return spots

    def touch(self) -> float:
        """Rewrite a byte of each page of the outputs; return the share of pages that the system had to create."""
        before, count = page_faults(), 0
        for name in self._named("out"):
            pages = self.flat[name].view(np.uint8)[::_PAGE_BYTES]
            pages ^= 0
            count += pages.size
        return min(1.0, (page_faults() - before) / count)

    @property
    def has_pages(self) -> bool:
        """Return whether outputs are so large that a kernel could save time by leaving page faults to later reads."""
        sizes = [operand.nbytes for operand in self.specs.values() if operand.role == "out"]
        return self._on_host and bool(sizes) and min(sizes) >= LEAST_PAGES * _PAGE_BYTES

    def snapshot(self, into: Mapping[str, Array] | None) -> dict[str, Array]:
        """Copy the outputs to the host, in their memory layout. into: an earlier snapshot, which is overwritten.

        If `into` is None, memory is allocated, which takes longer than the copy if outputs are large.
        """
        outputs = {name: self._memory[name].download(self.flat[name]) for name in self.written}
        if into is None:
            return {name: np.array(flat) for name, flat in outputs.items()}
        for name, flat in outputs.items():
            np.copyto(into[name], flat)
        return dict(into)

    def outputs(self, order: str, snapshot: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Return the outputs on the host: the current outputs, or the outputs in a snapshot."""
        outputs = {}
        for name in self.written:
            flat = self._memory[name].download(self.flat[name]) if snapshot is None else snapshot[name]
            outputs[name] = logical(flat.view(numpy_dtype(self.specs[name].dtype)), self.specs[name], order)
        return outputs

    @property
    def written(self) -> list[str]:
        """Return the names of the operands that a run writes."""
        return self._named("out") + self._named("inout")

    def repaired(self, draw: Draw) -> str | None:
        """If calls have damaged operands, load and poison these again; return the first complaint, otherwise None."""
        first = None
        for _ in range(2 * len(self.specs) + 1):  # guards are repaired one by one
            if not (damage := self.damage(draw)):
                break
            first = first or damage
            self.load(draw)
            self.poison()
        return first

    def damage(self, draw: Draw) -> str | None:
        """Return a complaint if a call has changed an input, an output's padding or bytes outside a buffer."""
        with draw.holding(self.change):
            for name, operand in self.specs.items():
                home = self._memory[name]
                if operand.role == "in":
                    if not home.holds(self.flat[name], name, draw):
                        return f"changed its input {name}"
                elif operand.pad:
                    gaps = padding(home.download(self.flat[name]), operand)
                    if any((gap != bits).any() for gap, bits in gaps):
                        return f"wrote into the padding between the rows of {name}"
                for guard, where in zip(self._guards(name), ("before", "beyond"), strict=True):
                    if not np.array_equal(home.download(guard), _GUARD[: guard.nbytes]):
                        home.upload(guard, _GUARD[: guard.nbytes])
                        return f"wrote {where} the bounds of {name}"
        return None


def loaded(problem: Problem, device: Device, seed: int = 0, **options: Any) -> tuple[Draw, OperandSet]:
    """Draw values from a seed, and load them into a new OperandSet. options: further arguments of OperandSet."""
    draw, operands = Draw(problem, seed), OperandSet(problem, device, **options)
    draw.redraw()
    operands.load(draw)
    return draw, operands


class ScratchBuffers:
    """A kernel's scratch buffers. The kernel is set up for each copy of the operands; all set-ups use the same buffers.

    memory: the kind of memory of buffers on the host.
    """

    def __init__(self, device: Device, memory: str = "") -> None:
        on_host = device.stream is None
        self._host = device.host_memory(memory) if memory or not on_host else device
        self._device: Memory = self._host if on_host else device
        self._beside = device
        self._buffers: list[Any] = []
        self._next = 0

    def rewind(self) -> None:
        """Make the next set-up of the kernel get the same buffers as the previous one."""
        self._next = 0

    def take(self, shape: tuple[int, ...], dtype: str, in_host: bool = False, gpu: int = 0) -> Any:
        """Return a poisoned array of this shape. Every set-up of the kernel gets it at the same address."""
        home = self._beside.peers((gpu,)) if gpu else self._host if in_host else self._device
        nbytes = int(np.prod(shape)) * DTYPES[dtype].itemsize
        if self._next == len(self._buffers):
            self._buffers.append(home.bytes(nbytes))
            self._buffers[-1].fill(0xFF)  # written, since unwritten memory still counts as available
        raw = self._buffers[self._next]
        if raw.nbytes != nbytes:
            raise ValueError(f"scratch buffer {self._next} has {nbytes} bytes, but {raw.nbytes} in an earlier set-up")
        self._next += 1
        return parts_of(raw.view(home.dtype(dtype)))[0].reshape(shape)

    def poison(self) -> None:
        """Set all bits to 1, which is NaN in every floating-point type."""
        for raw in self._buffers:
            raw.fill(0xFF)

    @property
    def nbytes(self) -> int:
        return sum(raw.nbytes for raw in self._buffers)


class Operands:
    """The argument of a kernel's set-up, with the operands, `threads`, `stream` and `tile` as attributes."""

    def __init__(self, operands: OperandSet, order: str, device: Device, threads: int, scratch: ScratchBuffers) -> None:
        self._arrays: Mapping[str, Any] = {name: operands.array(name, order) for name in operands.specs}
        self.threads = threads
        self.stream = device.stream
        self.tile: Tile | None = Tile()
        self.settings: dict[str, Any] = {}
        self._scratch = scratch

    def __getattr__(self, name: str) -> Any:
        try:
            return self._arrays[name]
        except KeyError:
            raise AttributeError(f"{name!r} is not an operand; expected one of {', '.join(self._arrays)}") from None

    def scratch(self, shape: tuple[int, ...], dtype: str, gpu: int = 0) -> Any:
        """Return a scratch array that lives as long as the kernel and counts in `scratch_bytes`.

        Its contents are not kept between calls. gpu: the number of the GPU, for kernels that are `spread`.
        """
        return self._scratch.take(shape, dtype, gpu=gpu)

    def host_scratch(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a scratch array for a GPU kernel, in host memory of the kind that the kernel declares."""
        return self._scratch.take(shape, dtype, in_host=True)

    def chose(self, **settings: Any) -> None:
        """Record settings that the set-up chose (a tile, a planner's rigour) as the row's `tunables`."""
        self.settings |= settings

    def launch(self, kernel: str, problem: str, stream: Any = None, **arrays: Any) -> Launch:
        """Return a function that launches another registered kernel on `arrays`, keyed by its operands' names.

        Kernels that combine others use this method. stream: a stream of the current GPU, by default the timed stream.
        The other kernel's scratch counts as this kernel's. Raises Unsupported if that kernel cannot take the problem.
        """
        chosen, parsed = REGISTRY.kernels[kernel], REGISTRY.problem(problem)
        part = SimpleNamespace(
            threads=self.threads, stream=stream or self.stream, scratch=self.scratch, chose=self.chose, **arrays
        )
        if isinstance(chosen, CudaKernel):
            return cuda_launch(chosen, parsed, part)
        if reason := chosen.refuses(parsed):
            raise Unsupported(reason)
        return chosen.launch(parsed, part)
