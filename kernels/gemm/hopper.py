"""GEMMs on Hopper's tensor cores: wgmma multiplies tiles that the TMA copies (`cuda/gemm/wgmma*.cu`)."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernelmark import (
    DTYPES,
    DeviceLimits,
    KernelCall,
    Prefer,
    Scratch,
    TensorMap,
    Tile,
    Tunable,
    cuda_kernel,
    split_dtype,
    tile_on,
)
from kernelmark.kernels._cuda import INT_LIMIT, ceil_div, multiprocessors, rows_of_16_bytes, whole_16_bytes
from kernelmark.kernels._waves import Choice, by_waves
from kernelmark.kernels.gemm._groups import GROUPED
from kernelmark.kernels.gemm.handwritten import HALF, within_grid, within_ints
from kernelmark.kernels.gemm.problem import GemmProblem

HOPPER: dict[str, Any] = {"archs": ("sm_90a",), "min_arch": 90}
#: wgmma takes TF32 only from operands that are stored along k.
TF32: dict[str, Any] = HOPPER | {"dtypes": ("f32",), "layouts": ("NT",), "numerics": "tf32"}
#: The same holds for FP8.
FP8: dict[str, Any] = TF32 | {
    "dtypes": ("e4m3.f32", "e4m3.bf16", "e5m2.f32"),
    "numerics": {"e4m3": "e4m3", "e5m2": "e5m2"},
}
#: The same holds for integers.
INT8: dict[str, Any] = TF32 | {"dtypes": ("s8.s32",), "numerics": "exact"}
#: FP8 with block scales, for the types that cuBLASLt also supports.
FP8_BLOCKS: dict[str, Any] = FP8 | {"dtypes": ("e4m3.f32", "e4m3.bf16"), "scales": ("blocks",)}

BM = 128  # rows of C per block
ROW_BYTES = 128  # bytes of a swizzled row of a tile, along k
BOX = 64  # rows and columns of a copy from an operand that is not stored along k
ATOM_BYTES = 1024  # alignment of tiles in shared memory, and the most bytes that alignment may cost
BUFFERS = 4  # the most buffers, of 64 rows of ROW_BYTES, through which a warpgroup stores parts of its tile
WARPGROUP = 128
TALL = 2 * BM  # rows of C per block of the kernel that transposes B in shared memory

#: Rows and columns of C per block of the launch that adds slices of k; each thread adds two columns.
SUM_ROWS, SUM_COLUMNS = 8, 64
#: Tiles of persistent kernels: WIDE reads least per multiply-add, NARROW and SMALL are for products with few tiles.
WIDE: dict[str, Tunable] = {"BN": 256, "STAGES": 3, "CLUSTER": 2, "SMS": multiprocessors}
NARROW: dict[str, Tunable] = {"BN": 128, "STAGES": 5, "CLUSTER": 2, "SMS": multiprocessors}
SMALL: dict[str, Tunable] = {"BN": 64, "STAGES": 6, "CLUSTER": 1, "SMS": multiprocessors}
#: The three with their relative rates: a block reads A once for all of its columns, so wide tiles are faster.
ALL = (Choice(WIDE, 1.0, 1), Choice(NARROW, 0.95, 1), Choice(SMALL, 0.75, 1))
#: Tiles of TALL rows, with rates that follow from the bytes they move through shared memory per multiply-add.
TURNING = (Choice(NARROW | {"STAGES": 3}, 1.0, 1), Choice(SMALL | {"STAGES": 4}, 0.75, 1))
#: The tuning space of persistent kernels. With fewer blocks than multiprocessors, each block gets more power, or other
#: kernels have room.
PERSISTENT: dict[str, tuple[Tunable, ...]] = {
    "BN": (64, 128, 256),
    "STAGES": (2, 3, 4, 5, 6, 7, 8),
    "CLUSTER": (1, 2, 4),
    "SMS": (multiprocessors, lambda device: max(4, device.multiprocessors * 3 // 4)),
}


def maps(p: GemmProblem, columns: int, tf32: bool = False) -> tuple[TensorMap, TensorMap]:
    """Return the tensor maps of A (copies of BM rows) and B (copies of `columns` columns). tf32: round to TF32."""
    depth = ROW_BYTES // DTYPES[split_dtype(p.dtype)[0]].itemsize
    a = (BM, depth) if p.op_a == "N" else (depth, BOX)
    b = (columns, depth) if p.op_b == "T" else (depth, BOX)
    return TensorMap("a", a, "128B", tf32), TensorMap("b", b, "128B", tf32)


def types(p: GemmProblem) -> str:
    """Return the C++ names of the storage types of A and B, and of C."""
    return ", ".join(DTYPES[dtype].ctype for dtype in split_dtype(p.dtype))


def stages_bytes(t: Tile, rows: int = BM) -> int:
    """Return the bytes of the ring in shared memory: STAGES tiles of A and of B."""
    return int(t.STAGES * ROW_BYTES * (rows + t.BN))


def store_bytes(p: GemmProblem, t: Tile) -> int:
    """Return the bytes of shared memory for results: buffers for parts of both warpgroups' tiles."""
    parts = t.BN * DTYPES[p.operands()[2].dtype].itemsize // ROW_BYTES
    return int(BM * ROW_BYTES * min(parts, BUFFERS))


def stride_c(p: GemmProblem) -> np.int64:
    """Return the stride of C, in elements, from one product of a batch to the next."""
    c = p.operands()[2]
    return np.int64(c.shape[-2] * c.ld)


def supports_wgmma(p: GemmProblem) -> str | None:
    """Return why the kernel with one block per tile cannot take the problem, or None."""
    return rows_of_16_bytes(p) or within_grid("m", BM)(p)


@cuda_kernel(
    "gemm",
    source="gemm/wgmma.cu",
    entry="gemm_wgmma",
    supports=supports_wgmma,
    tunables={"BN": (128, 64), "STAGES": (2, 3, 4, 5, 6, 7, 8)},
    prefer=Prefer(({"BN": 128, "STAGES": 3}, {"BN": 64, "STAGES": 2})),
    **HOPPER | HALF,
)
def wgmma(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Warpgroups multiply from shared memory that the TMA fills."""
    c = p.operands()[2]
    arguments = (*maps(p, t.BN), "c", p.m, p.n, p.k, p.alpha, p.beta, c.ld, stride_c(p))
    entry = f"gemm_wgmma<{types(p)}, {t.BN}, {t.STAGES}, Op::{p.op_a}, Op::{p.op_b}>"
    grid = (ceil_div(p.n, t.BN), ceil_div(p.m, BM), p.batch)
    return [KernelCall(grid, 2 * WARPGROUP, arguments, stages_bytes(t) + ATOM_BYTES, entry)]


def cluster_tiles(p: GemmProblem, t: Tile) -> int:
    """Return the number of tiles in all products if a cluster of blocks computes one tile at a time."""
    return ceil_div(p.m, BM * t.CLUSTER) * ceil_div(p.n, t.BN) * p.batch


def block_tiles(p: GemmProblem, t: Tile) -> int:
    """Return the number of tiles in all products if a block computes one tile at a time."""
    return cluster_tiles(p, t) * int(t.CLUSTER)


def supports_persistent(p: GemmProblem) -> str | None:
    """Return why the persistent kernels cannot take the problem, or None."""
    if reason := rows_of_16_bytes(p) or within_ints(p):
        return reason
    count = cluster_tiles(p, Tile(BN=SMALL["BN"], CLUSTER=SMALL["CLUSTER"]))
    return f"C has {count} tiles, expected at most {INT_LIMIT}" if count > INT_LIMIT else None


def supports_splitk(p: GemmProblem) -> str | None:
    """Return why slices of k cannot be multiplied separately and added, or None."""
    return supports_persistent(p) or within_grid("m", SUM_ROWS)(p)


def whole_boxes(_p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why the blocks of a cluster cannot share the columns of op(B), or None."""
    share, rest = divmod(t.BN, t.CLUSTER)
    return f"a block copies {t.BN} / {t.CLUSTER} columns, expected a multiple of {BOX}" if rest or share % BOX else None


def in_order(blocks: Callable[[Any, Tile], int], *wanted: Mapping[str, Tunable]) -> Prefer:
    """Prefer tiles in order, but skip one that fills at most half of the device if the next one makes more blocks."""

    def unless(p: Any, t: Tile, device: DeviceLimits) -> str | None:
        following = itertools.pairwise(tile_on(device, values) for values in wanted)
        if after := next((after for tile, after in following if tile == t), None):
            have, more = (blocks(p, tile) for tile in (t, after))
            if have <= t.SMS // 2 and more > have:
                return f"C has tiles for {have} blocks, expected more than {t.SMS // 2}: smaller tiles occupy {more}"
        return None

    return Prefer(wanted, unless)


def fastest(blocks: Callable[[Any, Tile], int], *choices: Choice, rows: int = BM) -> Prefer:
    """Prefer the tile of `rows` x BN elements whose blocks finish the whole product first, as `by_waves` estimates."""

    def useful(p: GemmProblem, t: Tile) -> float:
        return float(p.m * p.n * p.batch / (blocks(p, t) * rows * t.BN))

    return by_waves(choices, blocks, useful, lambda t: 3 * WARPGROUP, whole_boxes)


def persistent(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Return the launch of gemm/wgmma_persistent.cu for a problem of any type."""
    c = p.operands()[2]
    map_c = TensorMap("c", (64, ROW_BYTES // DTYPES[c.dtype].itemsize), "128B")
    scales = ("scale_a", "scale_b") if p.scale == "blocks" else ()
    arguments = (
        *(*maps(p, t.BN // t.CLUSTER, p.dtype == "f32"), map_c, "c"),
        *(p.m, p.n, p.k, p.batch, p.alpha, p.beta, c.ld, stride_c(p), *scales),
    )
    variant = f"{types(p)}, {t.BN}, {t.STAGES}, {t.CLUSTER}, Op::{p.op_a}, Op::{p.op_b}"
    entry = f"gemm_wgmma_persistent<{variant}{', const float *' * len(scales)}>"
    grid = min(t.SMS // t.CLUSTER, cluster_tiles(p, t)) * t.CLUSTER
    shared_bytes = stages_bytes(t) + store_bytes(p, t) + ATOM_BYTES
    return [KernelCall(grid, 3 * WARPGROUP, arguments, shared_bytes, entry, t.CLUSTER)]


for _name, _domain, _choices, _label in (
    ("wgmma_persistent", HOPPER | HALF, ALL, "wgmma in a persistent grid of clusters"),
    ("wgmma_tf32", TF32, ALL, "TF32 wgmma in a persistent grid of clusters, operands stored along k"),
    ("wgmma_fp8", FP8, ALL[1:], "FP8 wgmma in a persistent grid of clusters, sums of 128 products promoted to FP32"),
    ("wgmma_int8", INT8, ALL, "wgmma of 8-bit integers in a persistent grid of clusters, summed in 32 bits"),
    ("wgmma_fp8_blocks", FP8_BLOCKS, ALL[1:], "FP8 wgmma in a persistent grid of clusters, sums scaled when promoted"),
):
    cuda_kernel(
        "gemm",
        source="gemm/wgmma_persistent.cu",
        entry="gemm_wgmma_persistent",
        name=_name,
        label=f"Warp-specialised {_label}.",
        supports=lambda p: supports_persistent(p) or whole_16_bytes(p.operands()[2]),
        tunables=PERSISTENT | {"BN": tuple(choice.values["BN"] for choice in reversed(_choices))},
        valid=whole_boxes,
        prefer=fastest(block_tiles, *_choices),
        **_domain,
    )(persistent)


#: The most groups that a launch can have, and the table that describes them (`Groups` in gemm/wgmma_grouped.cu).
MOST_GROUPS = 256
GROUPS = np.dtype([("count", "u4"), ("rows", "u4", MOST_GROUPS), ("tiles", "u4", MOST_GROUPS)])
#: A cluster works on one group, so clusters of one block waste less if groups are small. Such a block reads all of its
#: columns of op(B) itself, which is half as much again per multiply-add, so its rate is lower.
GROUPED_TILES = (
    *ALL[:2],
    *(Choice({**values, "CLUSTER": 1}, 0.9 * rate, resident) for values, rate, resident in ALL[:2]),
    ALL[2],
)


def group_tiles(p: GemmProblem, t: Tile) -> list[int]:
    """Return the number of tiles along m in each group; a tile has the rows of a whole cluster."""
    return [ceil_div(end - first, BM * t.CLUSTER) for first, end in itertools.pairwise(p.group_rows)]


def grouped_blocks(p: GemmProblem, t: Tile) -> int:
    """Return the number of tiles of single blocks in all groups."""
    return sum(group_tiles(p, t)) * ceil_div(p.n, t.BN) * int(t.CLUSTER)


def supports_grouped(p: GemmProblem) -> str | None:
    """Return why the grouped kernel cannot take the problem, or None."""
    if p.groups > MOST_GROUPS:
        return f"there are {p.groups} groups, expected at most {MOST_GROUPS}"
    return supports_persistent(p) or whole_16_bytes(p.operands()[2])


@cuda_kernel(
    "gemm",
    source="gemm/wgmma_grouped.cu",
    entry="gemm_wgmma_grouped",
    supports=supports_grouped,
    tunables=PERSISTENT,
    valid=whole_boxes,
    prefer=fastest(grouped_blocks, *GROUPED_TILES),
    groupings=GROUPED,
    **HOPPER | HALF | {"layouts": ("NN", "NT")},
)
def wgmma_grouped(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Warp-specialised wgmma in a persistent grid of clusters over groups of rows, each with its own B."""
    c, tiles = p.operands()[2], np.cumsum(group_tiles(p, t))
    groups = np.zeros((), GROUPS)
    groups["count"] = p.groups
    groups["rows"][: p.groups], groups["tiles"][: p.groups] = p.group_rows[1:], tiles
    map_c = TensorMap("c", (64, ROW_BYTES // DTYPES[c.dtype].itemsize), "128B")
    arguments = (*maps(p, t.BN // t.CLUSTER), map_c, "c", p.m, p.n, p.k, p.alpha, p.beta, c.ld, groups[()])
    entry = f"gemm_wgmma_grouped<{types(p)}, {t.BN}, {t.STAGES}, {t.CLUSTER}, Op::{p.op_b}>"
    grid = min(t.SMS // t.CLUSTER * t.CLUSTER, grouped_blocks(p, t))
    shared_bytes = stages_bytes(t) + store_bytes(p, t) + ATOM_BYTES
    return [KernelCall(grid, 3 * WARPGROUP, arguments, shared_bytes, entry, t.CLUSTER)]


def rows_and_columns(p: GemmProblem) -> tuple[int, int]:
    """Return (m, n) if A is the operand in registers, or (n, m) if B is: the one that is not contiguous along k."""
    return (p.m, p.n) if p.op_a == "T" else (p.n, p.m)


def turned_tiles(p: GemmProblem, t: Tile) -> int:
    """Return the number of tiles in all products, for blocks that keep one operand in registers."""
    rows, columns = rows_and_columns(p)
    return ceil_div(rows, BM * t.CLUSTER) * ceil_div(columns, t.BN) * p.batch * int(t.CLUSTER)


@cuda_kernel(
    "gemm",
    source="gemm/wgmma_registers.cu",
    entry="gemm_wgmma_registers",
    supports=lambda p: supports_persistent(p) or whole_16_bytes(p.operands()[2]),
    tunables=PERSISTENT,
    valid=whole_boxes,
    prefer=fastest(turned_tiles, *ALL),
    **TF32 | {"layouts": ("NN", "TT")},
)
def wgmma_tf32_registers(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """TF32 wgmma in a persistent grid of clusters; registers hold the operand that is not stored along k."""
    c, depth = p.operands()[2], ROW_BYTES // DTYPES["f32"].itemsize
    rows, columns = ("a", "b") if p.op_a == "T" else ("b", "a")
    arguments = (
        *(TensorMap(rows, (depth, depth), "128B", True), TensorMap(columns, (t.BN // t.CLUSTER, depth), "128B", True)),
        *(TensorMap("c", (BOX, depth), "128B"), "c"),
        *(p.m, p.n, p.k, p.batch, p.alpha, p.beta, c.ld, stride_c(p)),
    )
    entry = f"gemm_wgmma_registers<{t.BN}, {t.STAGES}, {t.CLUSTER}, {str(rows == 'b').lower()}>"
    grid = min(t.SMS // t.CLUSTER * t.CLUSTER, turned_tiles(p, t))
    shared_bytes = stages_bytes(t) + store_bytes(p, t) + ATOM_BYTES
    return [KernelCall(grid, 3 * WARPGROUP, arguments, shared_bytes, entry, t.CLUSTER)]


def tall_tiles(p: GemmProblem, t: Tile) -> int:
    """Return the number of tiles in all products, for blocks that transpose B in shared memory."""
    return ceil_div(p.m, TALL * t.CLUSTER) * ceil_div(p.n, t.BN) * p.batch * int(t.CLUSTER)


@cuda_kernel(
    "gemm",
    source="gemm/wgmma_turned.cu",
    entry="gemm_wgmma_turned<{BN}, {STAGES}, {CLUSTER}>",
    supports=lambda p: supports_persistent(p) or whole_16_bytes(p.operands()[2]),
    tunables=PERSISTENT | {"BN": (64, 128)},
    valid=whole_boxes,
    prefer=fastest(tall_tiles, *TURNING, rows=TALL),
    **TF32 | {"layouts": ("TN",)},
)
def wgmma_tf32_turned(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """TF32 wgmma in a persistent grid of clusters, A in registers, B transposed in shared memory."""
    c, depth = p.operands()[2], ROW_BYTES // DTYPES["f32"].itemsize
    arguments = (
        *(TensorMap("a", (depth, depth), "128B", True), TensorMap("b", (depth, depth), "128B", True)),
        *(TensorMap("c", (BOX, depth), "128B"), "c"),
        *(p.m, p.n, p.k, p.batch, p.alpha, p.beta, c.ld, stride_c(p)),
    )
    grid = min(t.SMS // t.CLUSTER * t.CLUSTER, tall_tiles(p, t))
    shared_bytes = stages_bytes(t, TALL) + store_bytes(p, t) + ATOM_BYTES
    return [KernelCall(grid, 3 * WARPGROUP, arguments, shared_bytes, cluster=t.CLUSTER)]


def slices(p: GemmProblem, t: Tile) -> tuple[int, int]:
    """Divide k into slices whose blocks fill the device once; return the steps of a slice and the number of slices.

    A slice is at least DEPTH elements deep if k allows.
    """
    steps = ceil_div(p.k, ROW_BYTES // DTYPES[split_dtype(p.dtype)[0]].itemsize)
    wanted = max(1, min(t.SMS // block_tiles(p, t), p.k // t.DEPTH))
    depth = ceil_div(steps, wanted)
    return depth, ceil_div(steps, depth)


def block_slices(p: GemmProblem, t: Tile) -> int:
    """Return the number of tiles of all products, counted once for each slice of k."""
    return block_tiles(p, t) * slices(p, t)[1]


@cuda_kernel(
    "gemm",
    source="gemm/wgmma_splitk.cu",
    entry="gemm_wgmma_splitk",
    supports=supports_splitk,
    tunables=PERSISTENT | {"DEPTH": (256, 64, 128, 512, 1024, 2048)},
    valid=whole_boxes,
    prefer=in_order(block_slices, WIDE | {"DEPTH": 256}, NARROW | {"DEPTH": 256}, SMALL | {"DEPTH": 64}),
    **HOPPER | HALF,
)
def wgmma_splitk(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Slices of k multiplied by warp-specialised wgmma, their sums added in order by a second launch."""
    depth, count = slices(p, t)
    (a, _), c, ld = split_dtype(p.dtype), p.operands()[2], p.n + p.n % 2
    partials = Scratch("partials", 4 * p.batch * count * p.m * ld)
    product = (*maps(p, t.BN // t.CLUSTER), partials, p.m, p.n, p.k, p.batch, ld, depth, count)
    summed = (partials, "c", p.m, p.n, ld, count, p.alpha, p.beta, c.ld, stride_c(p))
    variant = f"{DTYPES[a].ctype}, {t.BN}, {t.STAGES}, {t.CLUSTER}, Op::{p.op_a}, Op::{p.op_b}"
    entries = f"gemm_wgmma_splitk<{variant}>", f"gemm_wgmma_splitk_sum<{DTYPES[c.dtype].ctype}>"
    blocks = min(t.SMS // t.CLUSTER, cluster_tiles(p, t) * count) * t.CLUSTER
    over_c = (ceil_div(p.n, SUM_COLUMNS), ceil_div(p.m, SUM_ROWS), p.batch)
    return [
        KernelCall(blocks, 3 * WARPGROUP, product, stages_bytes(t) + ATOM_BYTES, entries[0], t.CLUSTER),
        KernelCall(over_c, (SUM_COLUMNS // 2, SUM_ROWS), summed, entry=entries[1]),
    ]


def fits_3xtf32(p: GemmProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return why a tile is invalid for 3xTF32, or None. REGISTERS: whether A is split into TF32 in registers."""
    if t.REGISTERS and t.BN < 2 * BOX:
        return f"half of BN = {t.BN} is multiplied at a time, expected at least {BOX} columns"
    return whole_boxes(p, t, device)


@cuda_kernel(
    "gemm",
    source="gemm/wgmma_3xtf32.cu",
    entry="gemm_wgmma_3xtf32<{BN}, {STAGES}, {CLUSTER}, {REGISTERS}>",
    supports=supports_persistent,
    tunables=PERSISTENT | {"BN": (64, 128), "REGISTERS": (1, 0)},
    valid=fits_3xtf32,
    prefer=in_order(
        block_tiles,
        NARROW | {"STAGES": 4, "REGISTERS": 1},
        SMALL | {"STAGES": 5, "REGISTERS": 0},
        NARROW | {"STAGES": 4, "REGISTERS": 0},
    ),
    **TF32 | {"numerics": "3xtf32", "executed": lambda p, t: 3 * p.flop},
)
def wgmma_3xtf32(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """FP32 operands as sums of two TF32 numbers each, three products by wgmma, their sums added in FP32."""
    c = p.operands()[2]
    arguments = (*maps(p, t.BN // t.CLUSTER), "c", p.m, p.n, p.k, p.batch, p.alpha, p.beta, c.ld, stride_c(p))
    grid = min(t.SMS // t.CLUSTER, cluster_tiles(p, t)) * t.CLUSTER
    split_bytes = ROW_BYTES * (t.STAGES * t.BN if t.REGISTERS else 3 * (BM + t.BN))
    return [KernelCall(grid, 3 * WARPGROUP, arguments, stages_bytes(t) + split_bytes + ATOM_BYTES, cluster=t.CLUSTER)]
