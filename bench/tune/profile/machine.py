"""What `kernelmark profile` prints of a kernel's machine code: the main loop's mix, whether it fits, and the bound."""

from collections.abc import Iterator, Sequence

import msgspec

from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.report.format import count
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.tune.profile.agreement import agreement
from kernelmark.bench.tune.profile.bound import TimeBound, Work, bounds, render
from kernelmark.bench.tune.profile.counted import Counts
from kernelmark.bench.tune.profile.devices import Published
from kernelmark.bench.tune.profile.sass import USEFUL, LaunchCode, Sass

MIX = (TableColumn("main loop"), TableColumn("instructions", "right"), TableColumn("share", "right"), TableColumn(""))


class MachineCode(msgspec.Struct, frozen=True):
    """The machine code, how it compares with the counts, in words, and the bound; None without published limits."""

    sass: Sass
    agreement: str
    bound: TimeBound | None


def machine(
    counts: Counts, sass: Sass, kernel: CudaKernel, problem: Problem, planned: DeviceLimits, device: Published | None
) -> MachineCode:
    """Return what the machine code and the counts say together, for a device with published limits."""
    bound = bounds(_work(counts, sass, kernel, problem, planned), sass, device) if device else None
    return MachineCode(sass, agreement(counts, sass).words, bound)


def _work(counts: Counts, sass: Sass, kernel: CudaKernel, problem: Problem, planned: DeviceLimits) -> Work:
    """Return the work of all launches: multiply-adds as counted, on tensor cores as declared."""
    loop, fma = sass.main.loop, counts.total.fma
    by_fma = loop is not None and "FFMA" in loop.mix and fma is not None
    multiply_adds = 32 * fma if by_fma and fma is not None else kernel.executed_flop(problem, planned) // 2
    through_l2 = counts.block_bytes_read + counts.block_bytes_written
    return Work(multiply_adds, counts.total.wavefronts or None, through_l2, counts.traffic_bytes)


def sections(found: MachineCode) -> Iterator[str]:
    """Yield the parts of the page."""
    yield "\n".join(paragraph(described(function)) for function in found.sass.functions)
    main = found.sass.main
    if main.loop is not None:
        yield table(MIX, list(mix(main)), titled=True)
    yield paragraph(f"{found.agreement}.")
    if found.bound is not None:
        yield render(found.bound)
        yield paragraph("Bounds are counted, from published limits; no kernel is faster, and most are slower.")


def described(function: LaunchCode) -> str:
    """Return the resources of a launch in words."""
    spills = f", {function.spill_bytes} bytes spilled" if function.spill_bytes else ", no spills"
    return (
        f"{function.entry}: {function.registers} registers{spills}, {function.shared_bytes:,} bytes of shared memory, "
        f"{count(function.blocks_per_sm, 'block')} of {function.threads} threads a multiprocessor"
    )


def mix(main: LaunchCode) -> Iterator[Sequence[str]]:
    """Yield the rows of MIX, of a launch with a main loop."""
    assert main.loop is not None
    loop = main.loop
    for kind, number in sorted(loop.mix.items(), key=lambda pair: -pair[1]):
        useful = "useful" if kind in USEFUL else ""
        yield kind, f"{number:,}", f"{number / loop.instructions:.1%}".replace("%", " %"), useful
    yield "in all", f"{loop.instructions:,}", "", f"{loop.stall_cycles:,} stall cycles, {loop.waits:,} waits"
    if main.one_bank:
        share = f"{main.one_bank / loop.mix['FFMA']:.1%}".replace("%", " %")
        yield "register banks", f"{main.one_bank:,}", share, "of the FFMA read three registers of one bank"
    if main.clumped is not None:
        share = f"{main.clumped:.1%}".replace("%", " %")
        yield "copies clumped", "", share, "of the LDGSTS lie within a quarter of the loop"
    if main.cover is not None:
        yield "cover", "", "", f"about {main.cover:,} issue cycles from an LDG to its first use"
