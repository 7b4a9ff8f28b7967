"""Runs the launches of the stub driver in the emulator, on the stub's device memory, and collects complaints."""

import ctypes
import hashlib
import struct
import traceback
from collections import namedtuple
from itertools import pairwise

import numpy as np

from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import unwaived
from kernelmark.bench.emulator.worker import Buffer, EmulatedTensorMap, Im2col, run
from kernelmark.bench.emulator.worker import Launch as EmulatedLaunch
from kernelmark.bench.measure import launch
from kernelmark.bench.measure.compile import compile_cubin
from stub import control

FAILED = 719  # CUDA_ERROR_LAUNCH_FAILED, after which a context is unusable
MAGIC = b"KMTMAP1\0"
#: The bytes of a tensor map's element, by the driver's number of its type.
ITEM_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 11: 4}
TF32 = 11


#: A kernel that the emulator can run: its source, all entries of the program, and the kernel's entry.
Known = namedtuple("Known", "source entries entry")


class Emulator:
    """Runs launches of kernels that launchers have compiled. Equal launches on equal memory are run once."""

    def __init__(self):
        self.complaints = []
        self.ran = []
        self._known = {}
        self._seen = {}
        control.run_launches_with(self._safely)
        launch.compile_cubin = self._compiled

    def _compiled(self, source, entries, *more):
        """Compile a program and register its kernels, except those that wait for a clock, which the emulator lacks."""
        cubin = compile_cubin(source, entries, *more)
        if source != "selftest/spin.cu":
            self._known |= {symbol: Known(source, tuple(entries), entry) for entry, symbol in cubin.symbols.items()}
        return cubin

    def _safely(self, launched):
        """Run a launch; an exception must not cross the driver."""
        try:
            complaints = list(self._run(launched))
        except Exception:
            complaints = [traceback.format_exc()]
        self.complaints += complaints
        return FAILED if complaints else 0

    def _run(self, launched):
        symbol = launched.entry.decode()
        known, parameters = self._known[symbol], launched.parameters()
        memory = Memory(parameters)
        shape = (*launched.grid, *launched.block, *launched.cluster, launched.shared_bytes, launched.cooperative)
        key = hashlib.sha256(repr((symbol, shape, parameters)).encode())
        for name in memory.blocks:
            key.update(memory.read(name))
        if (outputs := self._seen.get(key.digest())) is None:
            yield from self._emulate(known, launched, parameters, memory)
            outputs = self._seen[key.digest()] = {name: memory.read(name) for name in memory.blocks}
            self.ran.append(known.entry)
        for name, content in outputs.items():
            memory.write(name, content)

    def _emulate(self, known, launched, parameters, memory):
        buffers = {name: Buffer("inout", np.frombuffer(memory.read(name), np.uint8).copy()) for name in memory.blocks}
        arguments, cooperative = tuple(map(memory.argument, parameters)), bool(launched.cooperative)
        shape = (tuple(launched.grid), tuple(launched.block), arguments, launched.shared_bytes, cooperative)
        call = EmulatedLaunch(known.entry, *shape, launched.cluster[0])
        (outcome,) = run(program(CUDA / known.source, known.entries), buffers, [call], orders=("forward",))
        yield from map(str, unwaived(outcome.reports))
        for name, content in outcome.outputs.items():
            memory.write(name, content.tobytes())


class Memory:
    """The blocks of device memory of a launch: from each pointer parameter to the next one or the allocation's end.

    A parameter counts as a pointer if it has 8 bytes and is an address in memory that the driver has allocated.
    """

    def __init__(self, parameters):
        self.blocks = {}
        starts = sorted({address for raw in parameters if (address := _address(raw)) is not None})
        for start, following in pairwise([*starts, 1 << 64]):
            base, size = control.allocation(start) or (0, 0)
            self.blocks[f"at{start:x}"] = (start, min(base + size, following) - start)

    def read(self, name):
        return ctypes.string_at(*self.blocks[name])

    def write(self, name, content):
        ctypes.memmove(self.blocks[name][0], content, len(content))

    def argument(self, raw):
        """Return a parameter in the emulator's form: a buffer's name, a tensor map, or its bytes."""
        address = _address(raw)
        if address is None:
            return np.void(raw)
        return _tensor_map(raw, f"at{address:x}") if raw.startswith(MAGIC) else f"at{address:x}"


def _address(raw):
    if raw.startswith(MAGIC):
        return int(struct.unpack_from("<8xQ", raw)[0])
    if len(raw) != 8:
        return None
    address = int.from_bytes(raw, "little")
    return address if control.allocation(address) else None


def _tensor_map(raw, name):
    """Decode a tensor map that driver/tensor_map.cpp encoded. Raises AssertionError if the emulator lacks such maps."""
    sizes, pitches, box = (struct.unpack_from(f, raw, at) for f, at in (("<4Q", 16), ("<3Q", 56), ("<3I", 88)))
    rank, kind, swizzle, _, *corners = struct.unpack_from("<4B6b", raw, 108)
    if corners[-1]:
        im2col = Im2col(*((corners[i], corners[i + 1]) for i in (0, 2, 4)))
        return EmulatedTensorMap(
            name, sizes, pitches, box[:2], ITEM_BYTES[kind], 16 << swizzle if swizzle else 0, im2col=im2col
        )
    assert (rank, box[2]) == (3, 1), f"a tensor map of {rank} dimensions and {box[2]} layers a box; expected 3 and 1"
    swizzled = 16 << swizzle if swizzle else 0
    return EmulatedTensorMap(name, sizes[:3], pitches[:2], box[:2], ITEM_BYTES[kind], swizzled, kind == TF32)
