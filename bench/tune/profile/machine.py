"""Compare a kernel's machine code with the emulator's counts, and compute a lower bound of its time on a GPU.

The emulator executes code from g++, and a GPU executes code from ptxas. If the two differ, for instance because nvcc
keeps a value in a register that g++ loads again, the counts describe g++'s code.

The bound is not a prediction, and is not stored with results. Each limit gives a time, computed as if there were no
other limit. The bound is the longest of these times: no kernel is faster at the published clocks, and a kernel may be
slower for many reasons.

All figures of a GPU are published by NVIDIA: the number of multiprocessors, the highest boost clock for which it states
a peak rate, dense peak rates of tensor cores, and the bandwidth of the memory. Rates per clock and multiprocessor are
from the CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" and "Shared Memory": 4 warp
schedulers, and 32 banks of 4 bytes, which serve one wavefront per clock. A figure that NVIDIA does not publish is None,
and gives no limit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError, unknown
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.report.format import count, seconds
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.tune.profile.counted import Counts
from kernelmark.bench.tune.profile.sass import USEFUL, Code, LaunchCode, Sass

SCHEDULERS = 4  # per multiprocessor; each issues one warp instruction a clock


class Published(msgspec.Struct, frozen=True):
    """The published figures of one GPU.

    tensor: dense peak rates in flop per second, by the types of operands and sums, such as `bf16.f32`. l2_bytes: bytes
    per clock that the L2 cache delivers. capability: compute capability times ten. multiply_adds: FP32 multiply-adds
    per clock and multiprocessor. source: the publication.
    """

    tensor: dict[str, float]
    l2_bytes: int | None
    name: str
    capability: int
    multiprocessors: int | None
    clock_hz: float | None
    multiply_adds: int
    dram_bytes_per_s: float
    source: str


def _sixteen_bits(flop_per_s: float, **others: float) -> dict[str, float]:
    """Return rates by types of operands and sums: `flop_per_s` for 16-bit operands, `others` for the other types."""
    same = dict.fromkeys(("f16.f32", "f16.f16", "bf16.f32"), flop_per_s)
    sums = {"f64": "f64", "s8": "s32"}
    return same | {f"{name}.{sums.get(name, 'f32')}": rate for name, rate in others.items()}


_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture, white paper v1.04, tables 2 and 3"
_H200 = f"NVIDIA H200 Tensor Core GPU, datasheet; the processor is that of {_HOPPER}"
_AMPERE = "NVIDIA A100 Tensor Core GPU Architecture, white paper v1.0, tables 1 and 4; datasheet, 80 GB"
_ADA = "NVIDIA Ada GPU Architecture, white paper v2.1, table 2"
_BLACKWELL = "NVIDIA Blackwell Architecture, technical brief, HGX B200; multiprocessors and clock are not published"

#: By name: the GPU, its compute capability times ten, multiprocessors, clock, multiply-adds, bandwidth, and the source.
_FIGURES: dict[str, tuple[Any, ...]] = {
    "h100-sxm": ("H100 SXM5", 90, 132, 1.98e9, 128, 3.352e12, f"{_HOPPER}; tensor rates at 1830 MHz"),
    "h100-pcie": ("H100 PCIe", 90, 114, 1.755e9, 128, 2.039e12, f"{_HOPPER}; tensor rates at 1620 MHz"),
    "h200": ("H200 SXM", 90, 132, 1.98e9, 128, 4.8e12, _H200),
    "a100": ("A100 SXM4 80 GB", 80, 108, 1.41e9, 64, 2.039e12, _AMPERE),
    "rtx4090": ("RTX 4090", 89, 128, 2.52e9, 128, 1.008e12, _ADA),
    "l40s": ("L40S", 89, 142, 2.52e9, 128, 0.864e12, "NVIDIA L40S, datasheet; its peak in FP32 is at 2520 MHz"),
    "b200": ("B200", 100, None, None, 128, 8e12, _BLACKWELL),
}
_SXM = _sixteen_bits(989.4e12, tf32=494.7e12, fp8=1978.9e12, s8=1978.9e12, f64=66.9e12)
_TENSOR = {
    "h100-sxm": _SXM,
    "h100-pcie": _sixteen_bits(756e12, tf32=378e12, fp8=1513e12, s8=1513e12, f64=51.2e12),
    "h200": _SXM,
    "a100": _sixteen_bits(312e12, tf32=156e12, s8=624e12, f64=19.5e12),
    "rtx4090": _sixteen_bits(165.2e12, tf32=82.6e12, fp8=330.3e12, s8=660.6e12) | {"f16.f16": 330.3e12},
    "l40s": _sixteen_bits(362.05e12, tf32=183e12, fp8=733e12, s8=733e12),
    "b200": _sixteen_bits(2250e12, tf32=1100e12, fp8=4500e12),
}
_L2 = {"a100": 5120}
DEVICES = {name: Published(_TENSOR[name], _L2.get(name), *figures) for name, figures in _FIGURES.items()}


def published(name: str, arch: str) -> Published:
    """Return a device by its name, such as `h100-sxm`. Raises UsageError if it is unknown or not of `arch`."""
    if name not in DEVICES:
        raise UsageError(f"device {name!r} {unknown(name, DEVICES)}")
    if not _is_of(DEVICES[name], arch):
        raise UsageError(f"device {name}: is sm_{DEVICES[name].capability}, not {arch}; set --arch to the device's")
    return DEVICES[name]


def usual(arch: str) -> Published | None:
    """Return the first device in this module with an architecture such as `sm_90a`, or None."""
    return next((device for device in DEVICES.values() if _is_of(device, arch)), None)


def _is_of(device: Published, arch: str) -> bool:
    return arch.removeprefix("sm_").rstrip("af") == str(device.capability)


class Work(msgspec.Struct, frozen=True):
    """The work of all launches of a kernel on a problem; None for work that was not counted.

    multiply_adds: scalar multiply-adds, by FFMA or tensor cores. wavefronts: of shared memory, at most 128 bytes
    each. l2_bytes: bytes between the L2 cache and the multiprocessors. dram_bytes: the fewest bytes read and written.
    """

    multiply_adds: int
    wavefronts: int | None = None
    l2_bytes: int | None = None
    dram_bytes: int | None = None


class TimeBound(msgspec.Struct, frozen=True):
    """Lower bounds on the time. times: seconds by known limit. limiting: the limit with the longest time.

    waves: the blocks of the main launch, divided by the blocks that the device holds at once. tail: the largest number
    of blocks on a multiprocessor, divided by the average. The times of limits within a multiprocessor are multiplied by
    `tail`, which assumes that all blocks have equal work.
    """

    device: str
    times: Mapping[str, float]
    waves: float | None
    tail: float | None

    @property
    def limiting(self) -> str | None:
        return max(self.times, key=lambda limit: self.times[limit], default=None)

    @property
    def time_s(self) -> float | None:
        """Return the least time in seconds, or None if no limit is known."""
        return max(self.times.values(), default=None)


def bounds(work: Work, sass: Sass, device: Published) -> TimeBound:
    """Return lower bounds on the time for the kernel's work with this machine code on a device.

    The limit of issue slots assumes that all multiply-adds are in the main loop, and that no trip skips instructions.
    """
    main, loop = sass.main, sass.main.loop
    clocks: dict[str, float] = {}  # if one multiprocessor did all the work
    if loop is not None and loop.useful:
        clocks["issue slots"] = work.multiply_adds / loop.multiply_adds * loop.instructions / SCHEDULERS
        if loop.mix.get("FFMA") and not any(opcode.startswith("DFMA") for opcode in loop.products):
            clocks["FFMA"] = work.multiply_adds / device.multiply_adds
    clocks["shared memory"] = work.wavefronts or 0
    times: dict[str, float] = {}
    waves = tail = None
    if device.multiprocessors and device.clock_hz:
        waves = main.blocks / (device.multiprocessors * main.blocks_per_sm) if main.blocks_per_sm else None
        tail = math.ceil(main.blocks / device.multiprocessors) * device.multiprocessors / main.blocks
        each = device.multiprocessors * device.clock_hz
        times = {limit: count / each * tail for limit, count in clocks.items() if count}
        if device.l2_bytes and work.l2_bytes:
            times["L2"] = work.l2_bytes / (device.l2_bytes * device.clock_hz)
    rate = device.tensor.get(tensor_type(loop) or "")
    if rate and work.multiply_adds:
        times["tensor cores"] = 2 * work.multiply_adds / rate * (tail or 1.0)
    if work.dram_bytes:
        times["DRAM"] = work.dram_bytes / device.dram_bytes_per_s
    return TimeBound(device.name, times, waves, tail)


def tensor_type(loop: Code | None) -> str | None:
    """Return the types of a loop's operands and sums on tensor cores, such as `bf16.f32`; None without tensor cores."""
    opcode = next((opcode for opcode in loop.products if "MMA" in opcode), None) if loop else None
    if opcode is None:
        return None
    name, *parts = opcode.split(".")
    if name in ("DMMA", "IMMA", "IGMMA"):
        return "f64.f64" if name == "DMMA" else "s8.s32"
    named = {"BF16": "bf16", "TF32": "tf32", "E4M3": "fp8", "E5M2": "fp8"}
    operand = next((named[part] for part in parts if part in named), "f16")
    return f"{operand}.{'f32' if 'F32' in parts else 'f16'}"


def render(bound: TimeBound, style: str = "simple") -> str:
    """Return the times as a table in a style of bench/report/layout.py, the limiting one first."""
    ordered = sorted(bound.times.items(), key=lambda pair: -pair[1])
    rows = [(limit, seconds(time), "limiting" * (limit == bound.limiting)) for limit, time in ordered]
    columns = (TableColumn(f"least time on {bound.device}"), TableColumn("bound", "right"), TableColumn(""))
    return table(columns, rows, style, titled=True)


#: The minimum number of trips per warp for a comparison: with fewer, work outside the loop would hide differences.
LEAST_TRIPS = 16
_WARP = 32
#: By opcode, the field of LineCounts with the emulator's counts, and the word with which this field's keys begin.
_NAMES = {"LDS": ("loads", "shared"), "LDG": ("loads", "global"), "STS": ("stores", "shared")}
_NAMES |= {"LDGSTS": ("copies", "copy")}


class Agreement(NamedTuple):
    """A comparison of counts with machine code. trips: trips of the main loop by all warps together.

    differing: the differences, as text. reason: why nothing was compared, or "". in_excess: the differences in which
    the counts have more accesses to shared memory than the machine code.
    """

    trips: float = 0.0
    differing: tuple[str, ...] = ()
    reason: str = ""
    in_excess: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        if self.reason:
            return f"Source level: the counts were not compared with the machine code, since {self.reason}"
        if self.differing:
            return f"Source level: in the main loop {'; '.join(self.differing)}"
        return f"The counts agree with the machine code over {self.trips:,.0f} trips of the main loop"


def agreement(counts: Counts, sass: Sass) -> Agreement:
    """For each width, compare the counted loads, stores and copies with those that the trips of the main loop execute.

    The number of trips follows from the counted multiply-adds. A warp executes the code outside the loop about once,
    and skips parts of its first and last trips; a difference that these instructions can explain is ignored.
    """
    if len(sass.functions) != 1:
        launched = f"{len(sass.functions)} functions are launched"
        return Agreement(reason=f"{launched}, and the counts are sums over all functions")
    (function,) = sass.functions
    loop, total = function.loop, counts.total
    if loop is None or not loop.mix.get("FFMA") or not total.fma:
        return Agreement(reason="there is no main loop of FFMA whose trips could be counted")
    warps = function.blocks * -(-function.threads // _WARP)
    trips = total.fma / loop.mix["FFMA"]
    if trips < LEAST_TRIPS * warps:
        made = f"a warp makes {trips / warps:.1f} trips on this problem"
        return Agreement(reason=f"{made}, expected at least {LEAST_TRIPS}")
    differing = dict(_differing(counts, function, trips, warps))
    return Agreement(trips, tuple(differing), in_excess=tuple(filter(differing.get, differing)))


def _differing(counts: Counts, function: LaunchCode, trips: float, warps: int) -> Iterator[tuple[str, bool]]:
    """Yield each difference in words, and whether it is an access to shared memory that is counted too often."""
    assert function.loop is not None
    inside, everywhere = function.loop.widths, function.code.widths
    for name, (kind, word) in _NAMES.items():
        emulated: Mapping[str, int] = getattr(counts.total, kind)
        widths = {int(key.split()[1]) * 8 for key in emulated if key.startswith(f"{word} ")}
        widths |= {int(key.split()[1]) for key in everywhere if key.startswith(f"{name} ")}
        for bits in sorted(widths):
            number = emulated.get(f"{word} {bits // 8}", 0)
            each, all_code = inside.get(f"{name} {bits}", 0), everywhere.get(f"{name} {bits}", 0)
            if abs(number - each * trips) > (all_code + each) * warps:
                text = f"{number / trips:.2f} {name} of {bits // 8} bytes counted per trip, the machine code has {each}"
                yield text, name != "LDG" and number > each * trips


MIX = (TableColumn("main loop"), TableColumn("instructions", "right"), TableColumn("share", "right"), TableColumn(""))


class MachineCode(msgspec.Struct, frozen=True):
    """The machine code, text that compares it with the counts, and the bound (None without published limits).

    unbounded: why wavefronts of shared memory give no bound, or "".
    """

    sass: Sass
    agreement: str
    bound: TimeBound | None
    unbounded: str = ""


def machine(
    counts: Counts, sass: Sass, kernel: CudaKernel, problem: Problem, planned: DeviceLimits, device: Published | None
) -> MachineCode:
    """Return the comparison of machine code and counts, and the bound for a device with published limits."""
    agreed, loop, total = agreement(counts, sass), sass.main.loop, counts.total
    unbounded = "; ".join(unlike(counts, sass, agreed)) if total.wavefronts else ""
    if loop is not None and "FFMA" in loop.mix and total.fma is not None:
        multiply_adds = _WARP * total.fma
    else:  # declared by the kernel, since they were not counted
        multiply_adds = kernel.executed_flop(problem, planned) // 2
    through_l2 = counts.block_bytes_read + counts.block_bytes_written
    work = Work(multiply_adds, None if unbounded else total.wavefronts, through_l2, counts.traffic_bytes)
    return MachineCode(sass, agreed.words, bounds(work, sass, device) if device else None, unbounded)


def unlike(counts: Counts, sass: Sass, agreed: Agreement) -> Iterator[str]:
    """Yield the counted accesses to shared memory that the machine code lacks."""
    yield from agreed.in_excess
    for does, emulated in (("load", counts.total.loads), ("store", counts.total.stores)):
        widths = {int(key.split()[1]) for key in emulated if key.startswith("shared ")}
        known = sass.widths.get((does, "shared"), frozenset())
        if other := sorted(widths - known):
            others = " and ".join(map(str, sorted(known))) or "no"
            yield f"{does}s of {' and '.join(map(str, other))} bytes counted, the machine code has {others}"


def sections(code: MachineCode) -> Iterator[str]:
    """Yield the sections of the output on machine code."""
    yield "\n".join(paragraph(described(function)) for function in code.sass.functions)
    main = code.sass.main
    if main.loop is not None:
        yield table(MIX, list(mix(main)), titled=True)
    yield paragraph(f"{code.agreement}.")
    if code.bound is not None:
        yield render(code.bound)
        if code.unbounded:
            yield paragraph(f"No bound by shared memory: {code.unbounded}.")
        note = "Bounds are computed from counts and published limits; no kernel is faster, and most are slower."
        yield paragraph(note)


def described(function: LaunchCode) -> str:
    """Return the resources of a launch in words."""
    spills = f", {function.spill_bytes} bytes spilled" if function.spill_bytes else ", no spills"
    return (
        f"{function.entry}: {function.registers} registers{spills}, {function.shared_bytes:,} bytes of shared memory, "
        f"{count(function.blocks_per_sm, 'block')} of {function.threads} threads per multiprocessor"
    )


def mix(main: LaunchCode) -> Iterator[Sequence[str]]:
    """Yield the rows of MIX, the table of instructions in the main loop; the launch must have such a loop."""
    assert main.loop is not None
    loop = main.loop
    for kind, number in sorted(loop.mix.items(), key=lambda pair: -pair[1]):
        useful = "useful" if kind in USEFUL else ""
        yield kind, f"{number:,}", f"{number / loop.instructions:.1%}".replace("%", " %"), useful
    yield "total", f"{loop.instructions:,}", "", f"{loop.stall_cycles:,} stall cycles, {loop.waits:,} waits"
    if main.one_bank:
        share = f"{main.one_bank / loop.mix['FFMA']:.1%}".replace("%", " %")
        yield "register banks", f"{main.one_bank:,}", share, "of the FFMA read three registers of one bank"
    if main.clumped is not None:
        share = f"{main.clumped:.1%}".replace("%", " %")
        yield "copies clumped", "", share, "of the LDGSTS lie within a quarter of the loop"
    if main.cover is not None:
        yield "cover", "", "", f"about {main.cover:,} issue cycles from an LDG to the first use of its data"
