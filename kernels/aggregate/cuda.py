"""Launch plans for the aggregation kernels in `cuda/aggregate`. The w gradients lie in w buffers of one GPU."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Scratch, Tile, cuda_kernel
from kernelmark.kernels._cuda import beyond_block, blocks_on_each, ceil_div
from kernelmark.kernels.aggregate import _wire
from kernelmark.kernels.aggregate._formats import FORMATS, Format
from kernelmark.kernels.aggregate.problem import AggregateProblem

VECTOR_BYTES, WARP = 16, 32
#: The most blocks: some on each multiprocessor, or a single one, whose threads each have many packs.
BLOCKS = (*map(blocks_on_each, (8, 16, 1, 2, 4, 32)), 1)
THREADS = (256, 128, 64, 512, 1024)
_PACKS: dict[str, Any] = {"V": (4, 2, 1), "THREADS": THREADS, "BLOCKS": BLOCKS}


def _ragged(p: AggregateProblem, t: Tile) -> str | None:
    """Return why the rows cannot be moved in packs of V elements, or None."""
    if t.V * DTYPES[p.dtype].itemsize > VECTOR_BYTES:
        return f"V = {t.V} elements of {p.dtype} are more than {VECTOR_BYTES} bytes"
    return f"n is {p.n}, expected a multiple of V = {t.V}" if p.n % t.V else None


def _packs(p: AggregateProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is invalid for kernels whose threads each keep ROWS packs in registers, or None."""
    return _ragged(p, t) or beyond_block(t.THREADS, t.V * (getattr(t, "ROWS", 1) + 1) * DTYPES[p.dtype].itemsize // 4)


def _blocks(t: Tile, packs: int) -> int:
    """Return the number of blocks along x for this many packs."""
    return min(int(t.BLOCKS), ceil_div(packs, t.THREADS))


def _preferred(threads: int = 256, **more: int) -> Prefer:
    """Prefer the widest packs that rows allow with 2048 threads per multiprocessor, otherwise with a single block."""
    counts = (blocks_on_each(2048 // threads), 1)
    every = ({"V": v, "THREADS": threads, "BLOCKS": blocks, **more} for blocks in counts for v in _PACKS["V"])
    return Prefer(tuple(every))


@cuda_kernel(
    "aggregate",
    source="aggregate/sum.cu",
    entry="aggregate_sum<real::{dtype}, {w}, {V}, {THREADS}, {ROWS}>",
    tunables={**_PACKS, "ROWS": (4, 2, 8, 16)},
    valid=_packs,
    prefer=_preferred(ROWS=4),
    wire=_wire.between_workers,
)
def device(p: AggregateProblem, t: Tile, limits: DeviceLimits) -> list[KernelCall]:
    """All gradients on one GPU are added, and the weights updated, in one pass."""
    blocks, n = _blocks(t, p.n // t.V), np.int64(p.n)
    if p.step == "sum":
        return [KernelCall(blocks, t.THREADS, ("g", "s", n))]
    entry = "aggregate_update<real::{dtype}, {w}, {V}, {THREADS}, {ROWS}>"
    return [KernelCall(blocks, t.THREADS, ("g", "weights", "replicas", n, p.lr), entry=entry)]


@cuda_kernel(
    "aggregate",
    source="aggregate/tree.cu",
    entry="aggregate_pairs<real::{dtype}, {V}, {THREADS}>",
    tunables=_PACKS,
    valid=_packs,
    prefer=_preferred(),
    wire=_wire.between_workers,
)
def tree(p: AggregateProblem, t: Tile, limits: DeviceLimits) -> list[KernelCall]:
    """Half of the gradients are added to the other half until one is left; the weights go back the same way."""
    return [*_up(p, t), *(_down(p, t) if p.step == "update" else ())]


def _up(p: AggregateProblem, t: Tile) -> Iterator[KernelCall]:
    """Yield the launches that add gradients up the tree; the last one adds two rows."""
    partial = Scratch("partial", ceil_div(p.w, 2) * p.n * DTYPES[p.dtype].itemsize)
    blocks, n, rows = _blocks(t, p.n // t.V), np.int64(p.n), p.w
    source: str | Scratch = "g"
    while rows > 2:
        half = ceil_div(rows, 2)
        yield KernelCall((blocks, half), t.THREADS, (source, partial, n, rows, half))
        rows, source = half, partial
    if p.step == "sum":
        yield KernelCall(blocks, t.THREADS, (source, "s", n, 2, 1))
    else:
        entry = "aggregate_pairs_update<real::{dtype}, {V}, {THREADS}>"
        yield KernelCall(blocks, t.THREADS, (source, "weights", "replicas", n, p.lr), entry=entry)


def _down(p: AggregateProblem, t: Tile) -> Iterator[KernelCall]:
    """Yield the launches that copy the first replica to all others."""
    blocks, n, have = _blocks(t, p.n // t.V), np.int64(p.n), 1
    while have < p.w:
        rows = min(have, p.w - have)
        entry = "aggregate_spread<real::{dtype}, {V}, {THREADS}>"
        yield KernelCall((blocks, rows), t.THREADS, ("replicas", n, have), entry=entry)
        have += rows


def _spilt(name: str, t: Tile, limits: DeviceLimits) -> str | None:
    """Return why a tile is left out, or None; NVRTC 13.0 gives some tiles too few registers, so that they spill."""
    if name != "int8" or limits.capability != 120 or t.V != 2 or t.THREADS >= 256:
        return None
    return f"the compiler spills packs of V = 2 with THREADS = {t.THREADS} on sm_120, expected 256 or more"


def _quantised(name: str, code: str) -> dict[str, Any]:
    """Return a strategy's declaration. name: of its format and of its source file. code: the format's C++ class."""
    registers = 2 * FORMATS[name].block // WARP
    return {
        **_wire.compressing(name),
        "source": f"aggregate/{name}.cu",
        "entry": f"aggregate_encode<{code}, {{V}}, {{THREADS}}>",
        "tunables": _PACKS,
        "valid": lambda p, t, limits: _ragged(p, t) or _spilt(name, t, limits) or beyond_block(t.THREADS, registers),
        "prefer": _preferred(128),
    }


def _exchange(p: AggregateProblem, t: Tile, name: str, code: str) -> list[KernelCall]:
    """Return the launches of quantised.cuh: all workers encode, the owners add and encode, all decode."""
    form = FORMATS[name]
    count = ceil_div(p.n, form.block)
    blocks, sizes = _blocks(t, count * WARP), (np.int64(p.n), np.int64(count))
    sent, returned = (_codes(form, rows, count, whose) for rows, whose in ((p.w, "workers"), (1, "owners")))
    shape = f"<{code}, {{V}}, {{THREADS}}>"
    calls = [
        KernelCall((blocks, p.w), t.THREADS, ("g", "e", *sent, *sizes)),
        KernelCall(blocks, t.THREADS, (*sent, "e", *returned, *sizes, p.w), entry=f"aggregate_reduce{shape}"),
    ]
    if p.step == "sum":
        return [*calls, KernelCall(blocks, t.THREADS, (*returned, "s", *sizes), entry=f"aggregate_decode{shape}")]
    args = (*returned, "weights", "replicas", *sizes, p.w, p.lr)
    return [*calls, KernelCall(blocks, t.THREADS, args, entry=f"aggregate_decode_update{shape}")]


def _codes(form: Format, rows: int, count: int, whose: str) -> tuple[Scratch, Scratch]:
    """Return the scratch buffers for the words and the scales of `count` blocks in each row."""
    words = Scratch(f"words_of_{whose}", rows * count * form.block * form.bits // 8)
    return words, Scratch(f"scales_of_{whose}", rows * count * 4 * form.scales)


@cuda_kernel("aggregate", **_quantised("onebit", "OneBit"))
def onebit(p: AggregateProblem, t: Tile, limits: DeviceLimits) -> list[KernelCall]:
    """One bit per element and two means per block of 512, with error feedback; signs by ballot."""
    return _exchange(p, t, "onebit", "OneBit")


@cuda_kernel("aggregate", **_quantised("int8", "Int8"))
def int8(p: AggregateProblem, t: Tile, limits: DeviceLimits) -> list[KernelCall]:
    """A byte per element and a scale per block of 256, with error feedback."""
    return _exchange(p, t, "int8", "Int8")
