"""Products with few rows of A, as for one or a few tokens; reading B determines their time."""

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Scratch, Tile, Tunable, cuda_kernel, split_dtype
from kernelmark.kernels._cuda import GRID_LIMIT, beyond_block, ceil_div, multiprocessors
from kernelmark.kernels.gemm._tiles import SLICES
from kernelmark.kernels.gemm.handwritten import arguments, within_grid
from kernelmark.kernels.gemm.problem import GemmProblem

MOST_ROWS = 16
SUM_THREADS = 256  # threads per block of the launch that adds the slices
SKINNY = "gemm_skinny<{ctype}, {TC}, {ROWS}, {COLS}, {WARPS}, {UNROLL}, {W}, Op::{op_b}>"
GROUPS, MEMBERS, VECTOR = 8, 4, 16  # groups of a warp, lanes of a group, bytes that a lane loads at once


def few_rows(p: GemmProblem) -> str | None:
    """Return why a kernel whose warps keep the sums of all rows cannot take `p`, or None."""
    if p.m > MOST_ROWS:
        return f"m is {p.m}, expected at most {MOST_ROWS}: every warp has the sums of all rows"
    return within_grid("m", 1)(p)


def itemsize(p: GemmProblem) -> int:
    """Return the bytes of an element of A and B."""
    return DTYPES[split_dtype(p.dtype)[0]].itemsize


def rows(p: GemmProblem) -> int:
    """Return the number of rows that a warp sums: all of A's in FP32; in 16 bits a multiple of 8, as in mma.sync."""
    return p.m if itemsize(p) == 4 else 8 * ceil_div(p.m, 8)


def step(p: GemmProblem) -> int:
    """Return the number of elements along k that a warp processes at a time."""
    return MEMBERS * (VECTOR // itemsize(p) if p.op_b == "T" else MEMBERS)


def least_columns(p: GemmProblem) -> int:
    """Return the fewest columns of C that a warp covers: one for each group of lanes, or a vector if op(B) is N."""
    return GROUPS if p.op_b == "T" else GROUPS * VECTOR // itemsize(p)


def width(p: GemmProblem) -> int:
    """Return the elements of a vector if all stored rows of A and B begin and end at vector boundaries, else 1."""
    vector = VECTOR // itemsize(p)
    whole = all(size % vector == 0 for o in p.operands()[:2] for size in (o.ld, o.shape[-1]))
    return vector if whole else 1


def shared_bytes(p: GemmProblem, t: Tile) -> int:
    """Return the bytes of a block's shared memory for all warps' sums; with 16-bit operands, their rows are padded."""
    padded = t.COLS if itemsize(p) == 4 else t.COLS | GROUPS if p.op_b == "T" else t.COLS + 5 * GROUPS
    return int(4 * t.WARPS * rows(p) * padded)


def _valid(p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
    if least_columns(p) > t.COLS:
        return f"COLS is {t.COLS}, expected at least {least_columns(p)}, which a warp covers"
    single, columns = itemsize(p) == 4, t.COLS // GROUPS
    loaded = 4 * t.UNROLL * (columns if p.op_b == "T" else t.COLS * itemsize(p) // (GROUPS * MEMBERS))
    pointers = 2 * (columns if p.op_b == "T" else 1) + 2 * (rows(p) if single else rows(p) // 8)
    warps = 8 if (rows(p) * t.COLS // 4 if single else t.COLS) > 32 else 16  # per multiprocessor, as in skinny.cu
    sums = (rows(p) if single else 4) * columns
    return beyond_block(32 * t.WARPS, sums + loaded + pointers, ceil_div(warps, t.WARPS))


def _unless(p: GemmProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return why a later tile is preferred, or None: a wide tile needs many rows of A, and registers for them."""
    if itemsize(p) == 4 and rows(p) * t.UNROLL > 32:
        return f"{t.UNROLL} vectors of each of {rows(p)} rows take nearly all registers, and spill on some devices"
    most = max(16, least_columns(p), 4 * p.m if itemsize(p) < 4 else min(4 * p.m, 512 // p.m))
    return f"a warp covers {t.COLS} columns, expected at most {most} with m = {p.m}" if most < t.COLS else None


def slices(p: GemmProblem, t: Tile) -> tuple[int, int]:
    """Divide k into slices that fill the device; return their depth (at least DEPTH, if k allows) and number."""
    blocks = ceil_div(p.n, t.COLS) * p.batch
    wanted = max(1, min(t.SMS * t.BLOCKS_PER_SM // blocks, p.k // t.DEPTH, GRID_LIMIT))
    stride = t.UNROLL * step(p)
    depth = ceil_div(ceil_div(p.k, wanted), stride) * stride
    return depth, ceil_div(p.k, depth)


_FILL: dict[str, Tunable] = {"SMS": multiprocessors, "BLOCKS_PER_SM": 2, "DEPTH": 512}
#: COLS and UNROLL with which a lane has at least eight vectors of B in flight.
_EIGHT_LOADS = ((64, 2), (32, 2), (16, 4))


@cuda_kernel(
    "gemm",
    source="gemm/skinny.cu",
    entry=SKINNY,
    min_arch=80,
    dtypes=("f32", "f16", "bf16", "f16.f32", "bf16.f32"),
    layouts=("NT", "NN"),
    numerics={"f32": "fp32", "f16": "f16", "bf16": "bf16"},
    supports=few_rows,
    tunables={
        "COLS": (8, 16, 32, 64, 128),
        "WARPS": (1, 2, 4, 8, 16),
        "UNROLL": (1, 2, 4, 8),
        "SMS": (multiprocessors,),
        **SLICES,
    },
    valid=_valid,
    prefer=Prefer(
        (
            *({"COLS": cols, "WARPS": 8, "UNROLL": unroll, **_FILL} for cols, unroll in _EIGHT_LOADS),
            *({"COLS": cols, "WARPS": 2, "UNROLL": 1, **_FILL, "DEPTH": 64} for cols in (64, 16)),
        ),
        _unless,
    ),
)
def skinny(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """At most 16 rows of A: B is streamed once through registers, k divided among warps and blocks."""
    depth, count = slices(p, t)
    entry = SKINNY.replace("{ROWS}", str(rows(p))).replace("{W}", str(width(p)))
    stored = DTYPES[split_dtype(p.dtype)[1]].ctype
    grid = (ceil_div(p.n, t.COLS), count, p.batch)
    a, b, c, m, n, k, alpha, beta, lda, ldb, ldc, *strides = arguments(p)
    if count == 1:
        args = (*arguments(p), depth)
        return [KernelCall(grid, 32 * t.WARPS, args, shared_bytes(p, t), entry.replace("{TC}", stored))]
    partials = Scratch("partials", 4 * p.batch * count * m * n)
    sliced = type(strides[0])(count * m * n)
    args = (a, b, partials, m, n, k, 1.0, 0.0, lda, ldb, n, *strides[:2], sliced, depth)
    summed = (partials, c, m, n, count, alpha, beta, ldc, strides[2])
    over_c = (ceil_div(n, SUM_THREADS), m, p.batch)
    return [
        KernelCall(grid, 32 * t.WARPS, args, shared_bytes(p, t), entry.replace("{TC}", "float")),
        KernelCall(over_c, SUM_THREADS, summed, entry=f"gemm_skinny_sum<{stored}>"),
    ]
