"""Analyse the machine code of a kernel's launches: the main loop, its instructions, and the share of useful ones.

A loop's counts are for one trip of one warp. They include the instructions of branches that are not taken.
"""

import functools
import json
import math
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from kernelmark.bench.measure.compile import INSTALL, compile_cubin, find_nvcc, header_folders
from kernelmark.bench.measure.cubin import elf_sections
from kernelmark.bench.measure.occupancy import occupancy
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Tile
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import tile_text

#: Bytes of an instruction from compute capability 7.0 on.
WIDTH = 16


class Instruction(msgspec.Struct, frozen=True):
    """One machine instruction. address: bytes from the function's start.

    stall: cycles until the warp's next instruction may issue, as ptxas encodes them; waits: the number of the six
    scoreboards that the instruction waits for. NVIDIA does not publish these fields; their bit positions are from Jia,
    Maggioni, Staiger, Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, chapter 2.
    """

    address: int
    opcode: str
    operands: str
    predicate: str
    stall: int
    waits: int

    @property
    def name(self) -> str:
        """Return the opcode without its modifiers: `LDS` of `LDS.128`."""
        return self.opcode.partition(".")[0]

    @property
    def target(self) -> int | None:
        """Return the target address of a direct branch, or None for any other instruction."""
        if self.name != "BRA":
            return None
        last = self.operands.rpartition(",")[2].strip()
        return int(last, 16) if last.startswith("0x") else None


@functools.lru_cache
def nvdisasm() -> str:
    """Return the path of nvdisasm: in NVIDIA's wheel, on PATH, or next to nvcc. Raises Unsupported if there is none."""
    beside = [Path(folder).parent / "bin" for folder in header_folders()]
    if nvcc := find_nvcc():
        beside.append(Path(nvcc).resolve().parent)
    wheels = [folder for folder in beside if "nvidia" in folder.parts]
    for folder in (*wheels, None, *beside):
        if path := shutil.which("nvdisasm", path=str(folder) if folder else None):
            return path
    raise Unsupported(f"no nvdisasm in the package nvidia-cuda-nvdisasm, on PATH or next to nvcc; {INSTALL}")


@functools.lru_cache
def disassembler() -> str:
    """Return the name and version of nvdisasm, such as `nvdisasm 13.5.37`. Raises Unsupported without one."""
    shown = subprocess.run([nvdisasm(), "--version"], capture_output=True, text=True, check=True).stdout
    return f"nvdisasm {shown.rpartition('V')[2].split()[0]}"


def instructions(code: bytes, symbol: str) -> list[Instruction]:
    """Return the instructions of a cubin's function, without the padding after its end.

    Raises Unsupported without nvdisasm, UsageError if nvdisasm cannot read the cubin.
    """
    section = elf_sections(code)[f".text.{symbol}"]
    words = code[section.offset : section.offset + section.size]
    listed = next(function for function in _functions(code) if function["function-name"] == symbol)
    decoded = []
    for at, entry in zip(range(0, len(words), WIDTH), listed["sass-instructions"], strict=True):
        word = int.from_bytes(words[at : at + WIDTH], "little")
        stall, waits = word >> 105 & 0xF, (word >> 116 & 0x3F).bit_count()
        operands, predicate = entry.get("operands", ""), entry.get("predicate", "")
        decoded.append(Instruction(at, entry["opcode"], operands, predicate, stall, waits))
    while decoded and (decoded[-1].name == "NOP" or decoded[-1].target == decoded[-1].address):
        del decoded[-1]
    return decoded


@functools.lru_cache(maxsize=8)
def _functions(code: bytes) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(code)
        done = subprocess.run([nvdisasm(), "-json", str(cubin)], capture_output=True, text=True, check=False)
    try:
        listed: list[dict[str, Any]] = json.loads(done.stdout)[1]
    except (ValueError, LookupError):
        reason = (done.stderr or done.stdout).strip().split("\n")[0]
        what = f"cannot read the cubin ({reason})"
        raise UsageError(f"{disassembler()}: {what}; expected 13.2 or newer; {INSTALL}") from None
    return listed


Kind = Literal["FFMA", "HMMA", "wgmma", "LDS", "LDG", "LDGSTS", "STS", "STG", "integer", "branch", "other"]
#: The kinds that count as useful work of a product.
USEFUL: tuple[Kind, ...] = ("FFMA", "HMMA", "wgmma")
_MOVES: tuple[Kind, ...] = ("LDS", "LDG", "LDGSTS", "STS", "STG")
_KINDS: dict[Kind, str] = {
    "FFMA": "FFMA FFMA2 DFMA",
    "HMMA": "HMMA IMMA DMMA BMMA QMMA OMMA",
    "wgmma": "HGMMA IGMMA BGMMA QGMMA",
    "LDS": "LDS LDSM",
    "LDG": "LDG LD",
    "LDGSTS": "LDGSTS",
    "STS": "STS STSM",
    "STG": "STG ST",
    "integer": "IADD IADD3 IADD64 IMAD IABS IMNMX ISETP ISCADD LEA LOP3 LOP PLOP3 SHF SHL SHR PRMT SEL BMSK POPC FLO "
    "BREV SGXT VIADD VIADDMNMX VIMNMX VIMNMX3 I2I UIADD3 UIMAD ULEA ULOP3 USHF UISETP UPRMT USEL UMOV UPLOP3 USGXT "
    "UFLO UPOPC UBMSK UVIADD UVIMNMX IDP XMAD LDC ULDC LDCU MOV R2UR S2R S2UR R2P P2R CS2R R2B",
    "branch": "BRA BRX BSSY BSYNC BREAK EXIT CALL RET WARPSYNC JMP YIELD NOP",
}
_LOADS, _STORES = (tuple((does, space) for space in ("global", "shared")) for does in ("load", "store"))
#: The kinds and spaces of loads and stores by name; the space of LD and ST depends on the address.
_SPACES = {"LDG": _LOADS[:1], "LDS": _LOADS[1:], "LD": _LOADS, "STG": _STORES[:1], "STS": _STORES[1:], "ST": _STORES}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_REGISTER = re.compile(r"\bR(\d+)(\.64)?")


class Code(msgspec.Struct, frozen=True):
    """Counts of some instructions. mix: number by kind; widths: loads, stores and copies by opcode and bits per lane.

    products: multiply-add instructions by opcode. stall_cycles: the sum of the stalls that ptxas encodes, the fewest
    cycles that a warp takes. waits: instructions that wait for a scoreboard, and thus for an earlier instruction of
    variable latency.
    """

    instructions: int
    mix: dict[Kind, int]
    widths: dict[str, int]
    products: dict[str, int]
    stall_cycles: int
    waits: int

    @property
    def useful(self) -> int:
        return sum(self.mix.get(kind, 0) for kind in USEFUL)

    @property
    def multiply_adds(self) -> int:
        """Return the scalar multiply-adds of a warp that executes each of the instructions once."""
        return sum(count * lanes(opcode) for opcode, count in self.products.items())

    @property
    def useful_share(self) -> float:
        """Return the share of multiply-add instructions, 0 to 1."""
        return self.useful / self.instructions if self.instructions else 0.0


class LaunchCode(msgspec.Struct, frozen=True):
    """A launch: the sizes of grid and block, the compiler's report, all code, and the main loop if there is one.

    blocks_per_sm: computed for the device that the launches are planned for. loop_at: first and last address of the
    loop. clumped: the largest share of the loop's copies (LDGSTS) in any quarter of the loop; None without copies.
    cover: an estimate of the fewest issue cycles from a load in the loop to its first use; None without loads.
    one_bank: the number of FFMA in the loop that read three registers of one bank; None without FFMA.
    """

    entry: str
    blocks: int
    threads: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    blocks_per_sm: int
    code: Code
    loop: Code | None
    loop_at: tuple[int, int] | None
    clumped: float | None = None
    cover: int | None = None
    one_bank: int | None = None


class Sass(msgspec.Struct, frozen=True):
    """All launches of a kernel's tile on a problem, in order, with the compiler and the disassembler."""

    kernel: str
    problem: str
    tunables: str
    arch: str
    compiler: str
    disassembler: str
    functions: tuple[LaunchCode, ...]

    @property
    def widths(self) -> dict[tuple[str, str], frozenset[int]]:
        """Return the bytes per lane of all loads and stores in the code, by kind and space."""
        return access_widths(function.code for function in self.functions)

    @property
    def main(self) -> LaunchCode:
        """Return the launch whose loop has the most multiply-adds, or else the most loads and stores."""
        return max(self.functions, key=lambda function: _work(function.loop))


def access_widths(codes: Iterable[Code]) -> dict[tuple[str, str], frozenset[int]]:
    """Return the bytes per lane of loads and stores, such as 4 and 16, by kind and space: `("load", "shared")`."""
    result: dict[tuple[str, str], set[int]] = {}
    for name, bits in (key.split() for code in codes for key in code.widths):
        for kind in _SPACES.get(name, ()):
            result.setdefault(kind, set()).add(int(bits) // 8)
    return {kind: frozenset(widths) for kind, widths in result.items()}


def analyse(kernel: CudaKernel, problem: Problem, tile: Tile, arch: str, device: DeviceLimits) -> Sass:
    """Return the analysed machine code of a tile's launches; a function that is launched twice appears once.

    device: the device to plan the launches for. Raises CompileError; Unsupported without a compiler or nvdisasm.
    """
    named, calls = disassembler(), dict(kernel.calls(problem, tile, device))
    cubin = compile_cubin(kernel.source, tuple(calls), arch, kernel.id)
    functions = []
    for entry, call in calls.items():
        used, threads = cubin.resources[entry], math.prod(extents(call.block))
        shared = used.static_shared_bytes + call.shared_bytes
        fits = occupancy(device, threads, used.registers, shared)
        listed = instructions(cubin.code, cubin.symbols[entry])
        loop = main_loop(listed)
        functions.append(
            LaunchCode(
                entry=entry,
                blocks=math.prod(extents(call.grid)),
                threads=threads,
                shared_bytes=shared,
                registers=used.registers,
                spill_bytes=used.spill_bytes,
                blocks_per_sm=fits.blocks_per_sm,
                code=counted(listed),
                loop=counted(loop) if loop else None,
                loop_at=(loop[0].address, loop[-1].address) if loop else None,
                clumped=clumped(loop),
                cover=cover(loop, fits.blocks_per_sm * math.ceil(threads / 32)),
                one_bank=one_bank(loop),
            )
        )
    return Sass(kernel.id, problem.id, tile_text(vars(tile)), arch, cubin.compiler, named, tuple(functions))


def kind(instruction: Instruction) -> Kind:
    """Return the kind of an instruction; barriers, waits, FADD and conversions are `other`.

    ptxas inserts loads that never execute (`@!PT LDS RZ`) before copies to shared memory; they only take issue slots.
    """
    return "other" if instruction.predicate == "@!PT" else _KIND_OF.get(instruction.name, "other")


def kinds_of(listed: Sequence[Instruction]) -> list[Kind]:
    """Return the kind of each instruction of a loop. In a loop with tensor cores, FFMA counts as `other`."""
    kinds = [kind(instruction) for instruction in listed]
    return ["other" if each == "FFMA" else each for each in kinds] if {"HMMA", "wgmma"} & set(kinds) else kinds


def counted(listed: Iterable[Instruction]) -> Code:
    """Return the counts of some instructions."""
    instructions = list(listed)
    kinds = kinds_of(instructions)
    moves = (f"{i.name} {width(i)}" for i, of in zip(instructions, kinds, strict=True) if of in _MOVES)
    products = (i.opcode for i, of in zip(instructions, kinds, strict=True) if of in USEFUL)
    return Code(
        instructions=len(instructions),
        mix=dict(sorted(Counter(kinds).items())),
        widths=dict(sorted(Counter(moves).items())),
        products=dict(sorted(Counter(products).items())),
        stall_cycles=sum(i.stall for i in instructions),
        waits=sum(i.waits > 0 for i in instructions),
    )


def lanes(opcode: str) -> int:
    """Return the multiply-adds of one warp instruction: 32 for FFMA, 64 for FFMA2, m * n * k for a matrix product.

    Four warps issue a wgmma together, so each is credited with a quarter: 65,536 for `HGMMA.64x256x16.F32`.
    """
    name, *parts = opcode.split(".")
    if "MMA" not in name:
        return 64 if name == "FFMA2" else 32
    for part in parts:
        if sizes := re.fullmatch(r"(8|16)(8)(\d+)|(\d+)x(\d+)x(\d+)", part):
            return math.prod(int(size) for size in sizes.groups("1")) // (4 if _KIND_OF[name] == "wgmma" else 1)
    raise ValueError(f"{opcode}: has no shape; expected one such as HMMA.16816.F32")


def width(instruction: Instruction) -> int:
    """Return the bits that a load, store or copy moves per lane; 32 if the opcode does not contain them."""
    parts = instruction.opcode.split(".")[1:]
    if instruction.name in ("LDSM", "STSM"):  # 8 x 8 matrices of 16 bits, a register each
        return 32 * next((int(part) for part in parts if part in ("1", "2", "4")), 1)
    named = {"U8": 8, "S8": 8, "8": 8, "U16": 16, "S16": 16, "16": 16, "64": 64, "128": 128, "256": 256}
    return next((named[part] for part in parts if part in named and part != "E"), 32)


def main_loop(listed: Sequence[Instruction]) -> list[Instruction]:
    """Return the innermost loop with the most multiply-adds, or else the most loads and stores; [] without a loop.

    Multiply-adds are counted by `lanes`, so that a wgmma outweighs the FFMA that scale its sums.

    Each backward branch closes a loop: all instructions that reach the branch without passing its target (Aho, Lam,
    Sethi, Ullman, "Compilers", 9.6.6, natural loops). A loop counts as innermost unless a loop inside it has at least
    a third of the work. The loop along k has only a third of a tile's work if one trip is peeled off at each end.
    """
    backwards = [i for i, last in enumerate(listed) if last.target is not None and last.target < last.address]
    before = _predecessors(listed)
    loops = [_natural(listed, before, last) for last in backwards]
    products = [lanes(i.opcode) if kind(i) in USEFUL else 0 for i in listed]
    moves = [int(kind(i) in _MOVES) for i in listed]
    for weights in (products, moves):
        works = [sum(weights[i] for i in loop) for loop in loops]
        busy = [(loop, work) for loop, work in zip(loops, works, strict=True) if work]
        inner = [(loop, work) for loop, work in busy if not any(o < loop and 3 * w >= work for o, w in busy)]
        if inner:
            best, _ = max(inner, key=lambda pair: pair[1])
            return [listed[i] for i in sorted(best)]
    return []


def clumped(loop: Sequence[Instruction]) -> float | None:
    """Return the largest share (0 to 1) of a loop's LDGSTS (cp.async) in any window of a quarter of its length.

    No window wraps around the loop's end. None without LDGSTS.
    """
    places = [place for place, instruction in enumerate(loop) if kind(instruction) == "LDGSTS"]
    if not places:
        return None
    quarter = max(len(loop) // 4, 1)
    return max(sum(first <= place < first + quarter for place in places) for first in places) / len(places)


def cover(loop: Sequence[Instruction], resident_warps: int) -> int | None:
    """Estimate the fewest issue cycles from a load (LDG) to the first use of its registers. None without LDG.

    The estimate is the number of FFMA between load and use, times the warps per scheduler. In a loop without FFMA all
    instructions count. The use may be in the next trip. resident_warps: per multiprocessor, which has four schedulers.
    """
    by_ffma = "FFMA" in kinds_of(loop)
    distances = []
    for place, load in enumerate(loop):
        if kind(load) == "LDG":
            waited = _registers(load, only_result=True)
            after = [*loop[place + 1 :], *loop[: place + 1]]
            until = next((i for i, other in enumerate(after) if waited & _registers(other)), len(loop))
            distances.append(sum(kind(other) == "FFMA" for other in after[:until]) if by_ffma else until)
    return round(min(distances) * max(resident_warps / 4, 1)) if distances else None


def one_bank(loop: Sequence[Instruction]) -> int | None:
    """Return the number of FFMA that read three registers of one bank (all even or all odd). None without FFMA.

    Such an FFMA takes an additional issue cycle. A register that the previous FFMA kept for the same operand (`.reuse`)
    is not read. Jia and others, as cited above, measured this on Volta; it is assumed for later architectures.
    """
    reused: list[str] = []
    conflicts, has_ffma = 0, False
    for instruction in loop:
        if instruction.name != "FFMA":
            reused = []
            continue
        sources = [source.strip(" -|").partition(".") for source in instruction.operands.split(",")[1:]]
        read = {name for place, (name, *_) in enumerate(sources) if name not in reused[place:][:1]}
        numbers = [int(name[1:]) for name in read if re.fullmatch(r"R\d+", name)]
        conflicts += len(numbers) == 3 and len({number % 2 for number in numbers}) == 1
        reused = [name if suffix == "reuse" else "" for name, _, suffix in sources]
        has_ffma = True
    return conflicts if has_ffma else None


def _registers(instruction: Instruction, only_result: bool = False) -> set[int]:
    """Return the registers that an instruction reads or writes; of consecutive ones, nvdisasm prints only the first."""
    operands = [text for text in instruction.operands.split(",") if not re.match(r"!?U?P[T\d]", text)]
    spans = zip(operands[: 1 if only_result else None], _spans(instruction), strict=False)
    return {
        int(first) + more
        for operand, span in spans
        for first, pair in _REGISTER.findall(operand)
        for more in range(1 + bool(pair) if "[" in operand else span)
    }


def _spans(instruction: Instruction) -> tuple[int, ...]:
    """Return the number of registers of each operand, except addresses; for a matrix product, an upper bound."""
    name, modifiers = instruction.name, instruction.opcode.split(".")[1:]
    if "MMA" in name:
        return (4, 4, 2, 4, 1, 1)
    if "WIDE" in modifiers:
        return (2, 1, 1, 2)
    if kind(instruction) in _MOVES:
        return (max(width(instruction) // 32, 1),) * 3
    return (2 if name[0] == "D" or name in ("FFMA2", "CS2R") or {"64", "F64"} & set(modifiers) else 1,) * 6


def _work(code: Code | None) -> tuple[int, int]:
    return (code.multiply_adds, sum(code.mix.get(move, 0) for move in _MOVES)) if code else (-1, -1)


def _natural(listed: Sequence[Instruction], before: Sequence[Sequence[int]], last: int) -> set[int]:
    head = (listed[last].target or 0) // WIDTH
    body, waiting = {head}, [last]
    while waiting:
        if (at := waiting.pop()) not in body:
            body.add(at)
            waiting += before[at]
    return body


def _predecessors(listed: Sequence[Instruction]) -> list[list[int]]:
    before = [list[int]() for _ in listed]
    for i, instruction in enumerate(listed):
        if instruction.target is not None and instruction.target // WIDTH < len(listed):
            before[instruction.target // WIDTH].append(i)
        leaves = instruction.name in ("BRA", "EXIT", "RET", "BRX", "JMP") and not instruction.predicate
        if i + 1 < len(listed) and not leaves:
            before[i + 1].append(i)
    return before
