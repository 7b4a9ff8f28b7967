"""The least time that published limits of a GPU leave a kernel: a bound, not a prediction, and no part of any row.

Each limit stands alone, as if all others were infinite; the one that leaves most time binds. A kernel cannot be faster
than that at the clocks that are published, and may be slower for many reasons.
"""

import math
from collections.abc import Mapping

import msgspec

from kernelmark.bench.report.format import seconds
from kernelmark.bench.report.layout import TableColumn, table
from kernelmark.bench.tune.profile.devices import SCHEDULERS, Published
from kernelmark.bench.tune.profile.sass import Code, LaunchCode, Sass


class Work(msgspec.Struct, frozen=True):
    """What all launches of a kernel do on a problem. None where it was not counted.

    multiply_adds: of one element each, by FFMA or tensor cores. wavefronts: of shared memory, 128 bytes at most each.
    l2_bytes: between the L2 cache and the multiprocessors. dram_bytes: what has to be read and written at least once.
    """

    multiply_adds: int
    wavefronts: int | None = None
    l2_bytes: int | None = None
    dram_bytes: int | None = None


class TimeBound(msgspec.Struct, frozen=True):
    """Least times in seconds by limit, for those that are known; `binds` is the limit with the longest of them.

    waves: blocks of the main launch over those that the device holds at once. tail: how much longer the multiprocessors
    with the most blocks work than all would on average; it lengthens what a multiprocessor does, and holds where blocks
    have equal work.
    """

    device: str
    times: Mapping[str, float]
    waves: float | None
    tail: float | None

    @property
    def binds(self) -> str | None:
        """Return the limit that binds; None where none is known."""
        return max(self.times, key=lambda limit: self.times[limit]) if self.times else None

    @property
    def time_s(self) -> float | None:
        """Return the least time, in seconds; None where no limit is known."""
        return max(self.times.values(), default=None)


def bounds(work: Work, sass: Sass, device: Published) -> TimeBound:
    """Return the least times that the device leaves the work of the kernel with that machine code.

    Issue slots assume that all multiply-adds are made in the main loop, whose other instructions come with them.
    """
    main = sass.main
    clocks = {
        "issue slots": _issue_clocks(work, main.loop),
        "FFMA": _ffma_clocks(work, main.loop, device),
        "shared memory": work.wavefronts,
    }
    times: dict[str, float] = {}
    waves = tail = None
    if device.multiprocessors and device.clock_hz:
        waves = main.blocks / (device.multiprocessors * main.blocks_per_sm) if main.blocks_per_sm else None
        tail = _tail(main, device.multiprocessors)
        each = device.multiprocessors * device.clock_hz
        times = {limit: count / each * tail for limit, count in clocks.items() if count}
        if device.l2_bytes and work.l2_bytes:
            times["L2"] = work.l2_bytes / (device.l2_bytes * device.clock_hz)
    rate = device.tensor.get(tensor_type(main.loop) or "")
    if rate and work.multiply_adds:
        times["tensor cores"] = 2 * work.multiply_adds / rate * (tail or 1.0)
    if work.dram_bytes:
        times["DRAM"] = work.dram_bytes / device.dram_bytes_per_s
    return TimeBound(device.name, times, waves, tail)


def _tail(main: LaunchCode, multiprocessors: int) -> float:
    """Return the most blocks of a multiprocessor over the average of all."""
    return math.ceil(main.blocks / multiprocessors) * multiprocessors / main.blocks


def _issue_clocks(work: Work, loop: Code | None) -> float | None:
    """Return the clocks of a multiprocessor that issuing the main loop's instructions takes."""
    if loop is None or not loop.useful:
        return None
    return work.multiply_adds / loop.multiply_adds * loop.instructions / SCHEDULERS


def _ffma_clocks(work: Work, loop: Code | None, device: Published) -> float | None:
    if loop is None or not loop.mix.get("FFMA") or any(opcode.startswith("DFMA") for opcode in loop.products):
        return None
    return work.multiply_adds / device.multiply_adds


def tensor_type(loop: Code | None) -> str | None:
    """Return the type of a loop's operands on tensor cores and of their sums, `bf16.f32`; None where it uses none."""
    opcode = next((opcode for opcode in loop.products if "MMA" in opcode), None) if loop else None
    if opcode is None:
        return None
    parts = opcode.split(".")
    if parts[0] == "DMMA":
        return "f64.f64"
    if parts[0] in ("IMMA", "IGMMA"):
        return "s8.s32"
    named = {"BF16": "bf16", "TF32": "tf32", "E4M3": "fp8", "E5M2": "fp8"}
    operand = next((named[part] for part in parts if part in named), "f16")
    return f"{operand}.{'f32' if 'F32' in parts else 'f16'}"


def render(bound: TimeBound, style: str = "simple") -> str:
    """Return the times as a table in a style of bench/report/layout.py, the one that binds first."""
    ordered = sorted(bound.times.items(), key=lambda pair: -pair[1])
    rows = [(limit, seconds(time), "binds" if limit == bound.binds else "") for limit, time in ordered]
    columns = (TableColumn(f"least time on {bound.device}"), TableColumn("bound", "right"), TableColumn(""))
    return table(columns, rows, style, titled=True)
