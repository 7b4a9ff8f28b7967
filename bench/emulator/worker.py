"""Run launches in a worker process with a time limit, and read back outputs and reports."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kernelmark.bench.emulator.counters import Loop
from kernelmark.bench.emulator.report import Diagnostic, located
from kernelmark.bench.measure.tensormap import extents

Array = np.ndarray[Any, Any]
Role = Literal["in", "out", "inout", "scratch"]

ORDERS = ("forward", "reverse", "random")
#: CPU seconds that one worker may take. Launches of the tests take milliseconds; only hung ones reach the limit.
LIMIT_S = 10
#: A worker ends itself at its limit; if it cannot, it is killed after this many times the limit in wall-clock time.
PATIENCE = 20


class WorkerError(AssertionError):
    """The worker refused the job: the plan does not fit the kernel, or no device would take the launch."""


@dataclass(frozen=True)
class Buffer:
    """Memory for a launch. data: the initial content, as rows of `row` elements, each followed by `pad` elements.

    role: an `in` buffer must not be written; an `out` buffer must be written completely; `scratch` is uninitialised and
    not read back. places: the byte offsets of the parts that `data` holds, all of one size; (0,) if whole.
    """

    role: Role
    data: Array
    row: int = 0
    pad: int = 0
    places: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Im2col:
    """The fields that only a tensor map over images has: the box's corners, and the strides between pixels."""

    lower: tuple[int, int]
    upper: tuple[int, int]
    stride: tuple[int, int]


@dataclass(frozen=True)
class EmulatedTensorMap:
    """A tensor map over a buffer. sizes: the elements along x, y and z. pitches: the strides of y and z in bytes.

    box: the box's elements along x and y. swizzle: the span of the swizzle in bytes, 0 for none. tf32: whether floats
    are rounded to TF32 on arrival. im2col: set for a map over images, which has four sizes and three pitches, channels
    first, and a box of channels x pixels.
    """

    buffer: str
    sizes: tuple[int, ...]
    pitches: tuple[int, ...]
    box: tuple[int, int]
    itemsize: int
    swizzle: int = 0
    tf32: bool = False
    im2col: Im2col | None = None


@dataclass(frozen=True)
class Launch:
    """A launch. An argument is the name of a buffer, an int, a float (C `float`), a NumPy scalar or a tensor map.

    cluster: the number of blocks, along the grid's x, that form a cluster. sample: the clusters to run, and how many
    clusters each represents when a program counts; empty to run all.
    """

    entry: str
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    args: tuple[Any, ...]
    shared_bytes: int = 0
    cooperative: bool = False
    cluster: int = 1
    sample: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The outcome of the launches under one order of threads and blocks.

    peak_bytes: the worker's peak memory so far. counts: the output lines of a counting program, as words. trips: the
    most iterations of each executed loop, if the program counts iterations.
    """

    order: str
    outputs: dict[str, Array]
    reports: list[Diagnostic]
    accesses: int = 0
    time_s: float = 0.0
    peak_bytes: int = 0
    counts: tuple[tuple[str, ...], ...] = ()
    trips: Mapping[Loop, int] = field(default_factory=dict)


def run(
    program: Path,
    buffers: Mapping[str, Buffer],
    launches: Sequence[Launch],
    *,
    orders: Sequence[str] = ORDERS,
    constants: Mapping[str, Array] | None = None,
    limit_s: int = LIMIT_S,
    widths: Iterable[tuple[str, int, int]] = (),
) -> list[Outcome]:
    """Run all launches once for each order, each time from the same initial contents. Raises WorkerError.

    constants: values of `__constant__` variables. After a crash or a time-out, the remaining orders are not run.
    widths: for a counting program, accesses whose width differs in the machine code. Each has its address, a number for
    its source line, and the sum of the machine code's widths for this kind of access, in bytes.
    """
    settings = (*(_line("width", *words) for words in widths), _line("limit", limit_s))
    job = b"".join((*settings, *_job(buffers, launches, orders, constants or {})))
    done = subprocess.run([str(program)], input=job, capture_output=True, timeout=limit_s * PATIENCE)
    outcomes = [] if done.returncode else list(_outcomes(done.stdout, program, buffers, orders))
    if not outcomes:
        said = done.stderr.decode(errors="replace").strip()
        raise WorkerError(said or f"the worker ended with status {done.returncode} without output")
    return outcomes


def _job(
    buffers: Mapping[str, Buffer], launches: Sequence[Launch], orders: Sequence[str], constants: Mapping[str, Array]
) -> Iterator[bytes]:
    for name, buffer in buffers.items():
        size = buffer.data.itemsize
        row = buffer.row or (buffer.data.size if buffer.role != "scratch" else 0)
        granule = min(size, 4).bit_length() - 1
        lengths = (buffer.data.nbytes, row * size, (row + buffer.pad) * size, granule, len(buffer.places))
        yield _line("buffer", name, buffer.role, *lengths)
        yield buffer.data.tobytes() + np.array(buffer.places, np.uint64).tobytes()
    for symbol, value in constants.items():
        yield _line("constant", symbol, value.nbytes) + value.tobytes()
    names = list(buffers)
    for launch in launches:
        sizes = (*extents(launch.grid), *extents(launch.block), launch.shared_bytes, int(launch.cooperative))
        yield _line("launch", *sizes, launch.cluster, launch.entry)
        for arg in launch.args:
            yield _argument(arg, names)
        for cluster, weight in launch.sample.items():
            yield _line("sample", cluster, weight)
    for order in orders:
        yield _line("run", ORDERS.index(order), 0)  # the seed of the random order


def _line(*words: object) -> bytes:
    return (" ".join(map(str, words)) + "\n").encode()


def _argument(arg: Any, names: list[str]) -> bytes:
    if isinstance(arg, str):
        return _line("argument", "pointer", names.index(arg))
    if isinstance(arg, EmulatedTensorMap):
        kind = (arg.itemsize, arg.swizzle, int(arg.tf32))
        if arg.im2col is None:
            return _line("argument", "map", names.index(arg.buffer), *arg.sizes, 1, *arg.pitches, 0, *arg.box, *kind)
        corners = (*arg.im2col.lower, *arg.im2col.upper, *arg.im2col.stride)
        return _line("argument", "im2col", names.index(arg.buffer), *arg.sizes, *arg.pitches, *arg.box, *kind, *corners)
    if isinstance(arg, np.generic):
        value = arg.tobytes()
    elif isinstance(arg, int):
        value = np.int32(arg).tobytes()
    elif isinstance(arg, float):
        value = np.float32(arg).tobytes()
    else:
        expected = "the emulator takes buffers, scalars and tensor maps"
        raise WorkerError(f"argument {arg!r}: {expected}, not {type(arg).__name__}")
    return _line("argument", "value", len(value)) + value


def _outcomes(stdout: bytes, program: Path, buffers: Mapping[str, Buffer], orders: Sequence[str]) -> Iterator[Outcome]:
    """Parse the runs in the worker's reply, which is lines of words, some followed by raw bytes."""
    at = 0
    for order in orders:
        outputs, reports = dict[str, Array](), list[str]()
        counts, trips = list[tuple[str, ...]](), dict[Loop, int]()
        while at < len(stdout):
            end = stdout.index(b"\n", at)
            line, at = stdout[at:end].decode(errors="replace"), end + 1
            verb, *words = line.split("\t")
            if verb == "report":
                reports.append(line)
            elif verb in ("count", "traffic", "footprint"):
                counts.append((verb, *words))
            elif verb == "trips":
                loop, most = Loop(words[0], int(words[1]), words[2]), int(words[3])
                trips[loop] = max(most, trips.get(loop, 0))
            elif verb == "buffer":
                name, size = words[0], int(words[1])
                outputs[name], at = np.frombuffer(stdout[at : at + size], buffers[name].data.dtype), at + size
            else:
                _, accesses, time_s, peak_kb = words  # the first is the number of switches between threads
                figures = (int(accesses), float(time_s), int(peak_kb) * 1024)
                yield Outcome(order, outputs, located(program, reports), *figures, tuple(counts), trips)
                break
