"""The instructions of a cubin, as nvdisasm names them, with the control word that ptxas encodes in each."""

import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.measure.compile import INSTALL, find_nvcc, header_folders
from kernelmark.bench.measure.cubin import elf_sections
from kernelmark.bench.plan.errors import Unsupported, UsageError

#: Bytes of an instruction from compute capability 7.0 on.
WIDTH = 16


class Instruction(msgspec.Struct, frozen=True):
    """One machine instruction. address: bytes from the function's start.

    stall: cycles until the warp's next instruction may issue, as ptxas encodes them; waits: how many of the six
    scoreboards the instruction waits for. NVIDIA does not publish the control word; its place is that of Jia, Maggioni,
    Staiger, Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, chapter 2.
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
        """Return the address that a direct branch goes to; None for every other instruction."""
        if self.name != "BRA":
            return None
        last = self.operands.rpartition(",")[2].strip()
        return int(last, 16) if last.startswith("0x") else None


@functools.lru_cache
def nvdisasm() -> str:
    """Return the path of nvdisasm: of NVIDIA's wheel, on PATH, or beside nvcc. Raises Unsupported where it is none."""
    beside = [Path(folder).parent / "bin" for folder in header_folders()]
    if nvcc := find_nvcc():
        beside.append(Path(nvcc).resolve().parent)
    wheels = [folder for folder in beside if "nvidia" in folder.parts]
    for folder in (*wheels, None, *beside):
        if found := shutil.which("nvdisasm", path=str(folder) if folder else None):
            return found
    raise Unsupported(f"no nvdisasm: found neither the package nvidia-cuda-nvdisasm nor a toolkit's; {INSTALL}")


@functools.lru_cache
def disassembler() -> str:
    """Return nvdisasm with its version, such as `nvdisasm 13.5.37`. Raises Unsupported where there is none."""
    shown = subprocess.run([nvdisasm(), "--version"], capture_output=True, text=True, check=True).stdout
    return f"nvdisasm {shown.rpartition('V')[2].split()[0]}"


def instructions(code: bytes, symbol: str) -> list[Instruction]:
    """Return the instructions of a cubin's function, without the padding after its end.

    Raises Unsupported where there is no nvdisasm, UsageError where it cannot read the cubin.
    """
    section = elf_sections(code)[f".text.{symbol}"]
    words = code[section.offset : section.offset + section.size]
    listed = next(function for function in _functions(code) if function["function-name"] == symbol)
    found = [
        _instruction(start, entry, int.from_bytes(words[start : start + WIDTH], "little"))
        for start, entry in zip(range(0, len(words), WIDTH), listed["sass-instructions"], strict=True)
    ]
    while found and (found[-1].name == "NOP" or found[-1].target == found[-1].address):
        del found[-1]
    return found


@functools.lru_cache(maxsize=8)
def _functions(code: bytes) -> list[dict[str, Any]]:
    """Return what nvdisasm lists of each function."""
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(code)
        done = subprocess.run([nvdisasm(), "-json", str(cubin)], capture_output=True, text=True, check=False)
    try:
        listed: list[dict[str, Any]] = json.loads(done.stdout)[1]
    except (ValueError, LookupError):
        reason = (done.stderr or done.stdout).strip().split("\n")[0]
        raise UsageError(
            f"{disassembler()}: cannot read the cubin ({reason}); expected 13.2 or newer; {INSTALL}"
        ) from None
    return listed


def _instruction(address: int, entry: dict[str, Any], word: int) -> Instruction:
    stall, waited = word >> 105 & 0xF, word >> 116 & 0x3F
    return Instruction(
        address, entry["opcode"], entry.get("operands", ""), entry.get("predicate", ""), stall, waited.bit_count()
    )
