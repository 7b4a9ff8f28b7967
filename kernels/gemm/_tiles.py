"""Tiles of products with panels in shared memory: tuning spaces, and rules for blocks, warps and threads."""

from collections.abc import Callable

from kernelmark import DeviceLimits, Tile
from kernelmark.kernels._cuda import GRID_LIMIT, beyond_block, beyond_static, ceil_div
from kernelmark.kernels.gemm.problem import GemmProblem

PAD = 4  # floats after each row of a panel, as in panel.cuh
PACK = 4  # floats in the widest access
#: Tuning spaces of products by FP32 fragments (fragment.cuh); in PIPELINE, panels are copied STAGES - 1 steps ahead.
FRAGMENTS = {
    "BM": (32, 64, 128, 256),
    "BN": (16, 32, 64, 128, 256),
    "BK": (8, 16, 32),
    "WM": (16, 32, 64, 128),
    "WN": (16, 32, 64, 128),
    "TM": (4, 8, 16),
    "TN": (4, 8, 16),
}
PIPELINE = {**FRAGMENTS, "STAGES": (2, 3, 4, 5, 6)}
#: Tuning space of sums that are cut along k into slices, so that blocks fill a device. DEPTH: the fewest elements along
#: k in a slice.
SLICES = {"BLOCKS_PER_SM": (1, 2, 3, 4, 6, 8), "DEPTH": (8, 64, 128, 256, 512, 1024)}

Rule = Callable[[GemmProblem, Tile, DeviceLimits], str | None]


def pack(p: GemmProblem) -> int:
    """Return 4 if all stored rows begin and end at multiples of 16 bytes, else 1."""
    rows = (length for operand in p.operands() for length in (operand.ld, operand.shape[-1]))
    return 1 if any(length % PACK for length in rows) else PACK


def blocks_per_sm(t: Tile) -> int:
    """Return the blocks per multiprocessor in the launch bounds (panel.cuh); the registers must suffice for them."""
    return 2 if t.TM * t.TN <= 64 else 1


def divides(t: Tile, *pairs: tuple[str, str]) -> str | None:
    """Return a reason if the first tunable of any pair does not divide the pair's second tunable, else None."""
    for part, whole in pairs:
        if getattr(t, whole) % getattr(t, part):
            return f"{part} = {getattr(t, part)} does not divide {whole} = {getattr(t, whole)}"
    return None


def unlike_fragments(t: Tile) -> str | None:
    """Return why warps' tiles do not divide the block's tile, or why 32 lanes do not fill a warp's tile, or None."""
    if reason := divides(t, ("WM", "BM"), ("WN", "BN"), ("TM", "WM"), ("TN", "WN")):
        return reason
    lanes = (t.WM // t.TM) * (t.WN // t.TN)
    return None if lanes == 32 else f"{lanes} lanes fill the tile of a warp, expected 32"


def unshared(threads: int, rows: int, across: int, even: bool = False) -> str | None:
    """Return why threads cannot share a panel of `rows` rows of `across` packs (vectors), or None (panel_share.cuh).

    even: whether all threads must have the same number of packs, because a thread holds its packs in registers.
    """
    if across < 1 or threads % across:
        return f"{threads} threads do not form whole rows of {across} packs"
    if even and rows % (threads // across):
        return f"{threads} threads do not share {rows} rows of {across} packs evenly"
    return None


def staged(p: GemmProblem, t: Tile, threads: int, w: int) -> str | None:
    """Return why threads cannot stage panels of both operands through registers, `w` words at a time, or None."""
    for width, along_k in ((t.BM, p.op_a == "N"), (t.BN, p.op_b == "T")):
        rows, cols = (width, t.BK) if along_k else (t.BK, width)
        if reason := unshared(threads, rows, cols // w, even=True):
            return reason
    return None


def copied(threads: int, t: Tile, along_k: tuple[bool, bool], w: int) -> str | None:
    """Return why threads cannot copy panels of both operands, or None; a copy along m or n moves `w` words."""
    for width, along in zip((t.BM, t.BN), along_k, strict=True):
        if reason := unshared(threads, 0, t.BK if along else width // w):
            return reason
    return None


def beyond_grid(p: GemmProblem, t: Tile) -> str | None:
    """Return why a grid has no room for the tiles along m, or None."""
    rows = ceil_div(p.m, t.BM)
    return None if rows <= GRID_LIMIT else f"{rows} tiles along y, expected at most {GRID_LIMIT}"


def columns(p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is invalid for kernels whose threads compute a column of TM elements each, or None."""
    if reason := divides(t, ("TM", "BM")) or beyond_grid(p, t):
        return reason
    threads = t.BM * t.BN // t.TM
    static = 4 * t.BK * (t.BM + t.BN + 2 * PAD)
    return beyond_block(threads, t.TM) or beyond_static(static) or staged(p, t, threads, 1)


def patches(words: Callable[[GemmProblem], int]) -> Rule:
    """Return the rule for kernels whose threads compute TM x TN elements each and stage `words` words at a time."""

    def valid(p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
        if reason := divides(t, ("TM", "BM"), ("TN", "BN")) or beyond_grid(p, t):
            return reason
        threads = t.BM * t.BN // (t.TM * t.TN)
        static = 4 * t.BK * (t.BM + t.BN + 2 * PAD)
        if reason := beyond_block(threads, t.TM * t.TN, blocks_per_sm(t)) or beyond_static(static):
            return reason
        return staged(p, t, threads, words(p))

    return valid


def warps(t: Tile) -> int:
    """Return the number of threads in a block that has one warp for each WM x WN part of its tile."""
    return int(32 * (t.BM // t.WM) * (t.BN // t.WN))


def double_buffered(p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is invalid for kernels whose warps multiply two staged panels in turn, or None."""
    if reason := unlike_fragments(t) or beyond_block(warps(t), t.TM * t.TN) or beyond_grid(p, t):
        return reason
    return beyond_static(8 * t.BK * (t.BM + t.BN + 2 * PAD)) or staged(p, t, warps(t), pack(p))


def pipelined(t: Tile, along_k: tuple[bool, bool], w: int) -> str | None:
    """Return why a tile is invalid for kernels whose warps multiply panels that were copied ahead, or None."""
    if reason := unlike_fragments(t) or beyond_block(warps(t), t.TM * t.TN, blocks_per_sm(t)):
        return reason
    return copied(warps(t), t, along_k, w)


def pipeline(p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is invalid for a product whose panels are copied ahead, or None."""
    return pipelined(t, (p.op_a == "N", p.op_b == "T"), pack(p)) or beyond_grid(p, t)
