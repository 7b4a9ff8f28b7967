"""wgmma kernels: what they refuse, which tile they take, that ring and order of tiles lose and repeat nothing."""

from collections import Counter
from itertools import product

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import CudaKernel, KernelCall, TensorMap, Tile
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.tune.profile.counted import count
from support.emulated import host_compiler, wrong_in_emulator
from support.kernels import CUDA, LAYOUTS, REGISTRY, lean
from support.kernels import refusal as refusal_of

IN_F32 = ("wgmma_tf32", "wgmma_3xtf32")
ALONG_K = (*IN_F32, "wgmma_fp8", "wgmma_int8")
BLOCKS, GROUPED = "wgmma_fp8_blocks", "wgmma_grouped"
#: What the ids of their products end with.
WORDS = {BLOCKS: "/scale-blocks", GROUPED: "/groups3-skewed"}
REGISTERS, TURNED = "wgmma_tf32_registers", "wgmma_tf32_turned"
OF_TF32 = {REGISTERS: "NN", TURNED: "TN"}  # with a layout
KERNELS = ("wgmma", "wgmma_persistent", "wgmma_splitk", *ALONG_K, BLOCKS, GROUPED)
PERSISTENT = ("wgmma_persistent", "wgmma_tf32", "wgmma_int8")
BAND = 8  # as in tileorder.cuh


def kernel(name: str) -> CudaKernel:
    return CUDA[f"gemm/cuda.{name}"]


def plan(name: str, problem: str, tile: Tile | None = None) -> KernelCall:
    parsed = REGISTRY.problem(id_of(name, problem))
    taken = tile or kernel(name).tile_for(parsed)
    call, *sums = kernel(name).plan(parsed, taken, H100)
    assert len(sums) == (name == "wgmma_splitk")
    return call


def refusal(name: str, problem: str) -> str:
    return refusal_of(f"gemm/cuda.{name}", id_of(name, problem))


def id_of(name: str, problem: str) -> str:
    """The id of a product, which has scales or groups where the kernel is for these."""
    return f"gemm/{problem}{WORDS.get(name, '')}"


def dtype_of(name: str) -> str:
    if name in ("wgmma_fp8", BLOCKS):
        return "e4m3.bf16"
    if name == "wgmma_int8":
        return "s8.s32"
    return "f32" if name in (*IN_F32, *OF_TF32) else "bf16"


def layout_of(name: str) -> str:
    return OF_TF32.get(name, "NT")


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    ("sizes", "operand"),
    [("m8n8k16/{0}/NT/lda+1", "a"), ("m8n8k17/{0}/NT", "a"), ("m8n8k16/{0}/NT/ldb+2", "b"), ("m8n7k16/{0}/NT", "c")],
)
def test_rows_that_the_tma_cannot_address_are_refused(name: str, sizes: str, operand: str) -> None:
    assert f"rows of {operand} begin every " in refusal(name, sizes.format(dtype_of(name)))


@pytest.mark.parametrize("name", KERNELS)
def test_padding_makes_rows_acceptable_that_the_tma_stores_whole(name: str) -> None:
    sizes, by_tma = f"k31/{dtype_of(name)}/NT/lda+1/ldb+1/ldc+", (*PERSISTENT, "wgmma_fp8", BLOCKS, GROUPED)
    assert refusal(name, f"m33n24{sizes}8") == ""
    assert ("a row of c has " in refusal(name, f"m33n29{sizes}3")) == (name in by_tma)


def test_c_may_be_wider_than_its_operands() -> None:
    assert refusal("wgmma", "m8n4k8/bf16.f32/NT") == ""
    assert "rows of c" in refusal("wgmma", "m8n4k8/bf16/NT")


@pytest.mark.parametrize("name", ALONG_K)
def test_tf32_and_bytes_are_multiplied_along_k_only(name: str) -> None:
    assert "has no NN path" in refusal(name, f"m8n8k16/{dtype_of(name)}/NN")
    assert "has no TT path" in refusal(name, f"m8n8k16/{dtype_of(name)}/TT")


def test_one_operand_is_along_k_and_the_other_is_not_where_one_is_in_registers() -> None:
    assert [bool(refusal(REGISTERS, f"m8n8k8/f32/{layout}")) for layout in LAYOUTS] == [False, True, True, False]
    assert "rows of a begin every " in refusal(REGISTERS, "m8n8k7/f32/NN")
    assert "rows of a begin every " in refusal(REGISTERS, "m9n8k8/f32/TT")
    assert "a row of c has " in refusal(REGISTERS, "m8n7k8/f32/NN/ldb+1/ldc+1")


def test_neither_operand_is_along_k_where_one_is_turned() -> None:
    assert [bool(refusal(TURNED, f"m8n8k8/f32/{layout}")) for layout in LAYOUTS] == [True, True, False, True]
    assert refusal(TURNED, "m8n8k7/f32/TN") == ""
    assert "rows of a begin every " in refusal(TURNED, "m9n8k8/f32/TN")
    assert "rows of b begin every " in refusal(TURNED, "m8n9k8/f32/TN/ldc+3")
    assert "a row of c has " in refusal(TURNED, "m8n7k8/f32/TN/ldb+1/ldc+1")


@pytest.mark.parametrize("name", [*KERNELS, *OF_TF32])
def test_only_hopper_has_wgmma(name: str) -> None:
    runs = [arch for arch in ("sm_80", "sm_89", "sm_90a", "sm_100", "sm_120") if kernel(name).runs_on(arch)]
    assert runs == ["sm_90a"]


def test_what_no_grid_can_cover_is_refused() -> None:
    assert "blocks along y" in refusal("wgmma", f"m{65535 * 128 + 1}n8k8/bf16/NT")
    assert "blocks along z" in refusal("wgmma", "m8n8k8/bf16/NT/batch65536")
    assert "tiles, expected at most" in refusal("wgmma_persistent", "m8388608n8388608k8/bf16/NT")


@pytest.mark.parametrize("name", [*KERNELS, *OF_TF32])
def test_a_block_fits_into_shared_memory(name: str) -> None:
    problem = f"m1024n1024k1024/{dtype_of(name)}/{layout_of(name)}"
    limit = H100.block_shared_bytes - 256  # mbarriers stand beside the dynamic part
    assert all(plan(name, problem, tile).shared_bytes <= limit for tile in known_tiles(name))


def known_tiles(name: str) -> list[Tile]:
    """The tiles that the declaration names."""
    return list(kernel(name).tiles())


@pytest.mark.parametrize("name", PERSISTENT)
@pytest.mark.parametrize(
    ("sizes", "columns"),
    [
        ("m4096n4096k64/{0}/NT", 256),
        ("m1024n2048k26752/{0}/NT", 128),  # 32 tiles of 256 x 256 would occupy 64 blocks of 132
        ("m512n1024k64/{0}/NT", 64),
        ("m100n104k64/{0}/NT", 64),
        ("m264n264k8/{0}/NT/batch64", 64),  # of which narrower tiles leave less empty
    ],
)
def test_a_tile_is_taken_unless_the_waves_of_smaller_ones_take_less_time(name: str, sizes: str, columns: int) -> None:
    tile = kernel(name).tile_for(REGISTRY.problem(f"gemm/{sizes.format(dtype_of(name))}"))
    assert columns == tile.BN


@pytest.mark.parametrize("name", [*KERNELS[1:], *OF_TF32])
def test_a_persistent_grid_is_whole_clusters_and_no_larger_than_device_or_work(name: str) -> None:
    for sizes, tile in product(("m1n8k16", "m300n520k16", "m4096n4096k64", "m40000n8k16"), known_tiles(name)):
        call = plan(name, f"{sizes}/{dtype_of(name)}/{layout_of(name)}", tile)
        assert call.cluster == tile.CLUSTER
        assert call.grid % tile.CLUSTER == 0
        assert 0 < call.grid <= max(tile.SMS, tile.CLUSTER)


def test_a_tile_whose_columns_are_turned_has_256_rows() -> None:
    tile = kernel(TURNED).tile_for(REGISTRY.problem("gemm/m4096n4096k64/f32/TN"))
    assert (tile.BN, tile.CLUSTER, plan(TURNED, "m4096n4096k64/f32/TN", tile).grid) == (128, 2, 132)
    assert plan(TURNED, "m1024n512k8/f32/TN", Tile(BN=128, STAGES=3, CLUSTER=2, SMS=132)).grid == 4 * 4
    assert kernel(TURNED).tile_for(REGISTRY.problem("gemm/m1024n2048k64/f32/TN")).BN == 64  # 64 tiles are 128 wide


@pytest.mark.parametrize(("layout", "clusters"), [("NN", 2 * 8), ("TT", 4 * 4)])
def test_the_rows_of_a_cluster_are_those_in_registers(layout: str, clusters: int) -> None:
    """A cluster has 256 of m and 128 of n in TT, and of n and m in NN, which computes the transpose of C."""
    tile = Tile(BN=128, STAGES=3, CLUSTER=2, SMS=132)
    assert plan(REGISTERS, f"m1024n512k8/f32/{layout}", tile).grid == 2 * clusters
    assert plan(REGISTERS, f"m1024n128k8/f32/{layout}", tile).grid == 2 * {"NN": 8, "TT": 4}[layout]


@pytest.mark.parametrize(
    ("sizes", "columns", "blocks"),
    [
        ("m1024n2048k26752", 256, 128),  # two slices for each of 64 tiles
        ("m128n256k4096", 64, 128),  # 32 for each of four
        ("m512n1024k64", 64, 64),
        ("m4096n4096k4096", 256, 132),  # one
    ],
)
def test_slices_of_k_fill_the_device_once(sizes: str, columns: int, blocks: int) -> None:
    tile = kernel("wgmma_splitk").tile_for(REGISTRY.problem(f"gemm/{sizes}/bf16/NT"))
    assert (tile.BN, plan("wgmma_splitk", f"{sizes}/bf16/NT", tile).grid) == (columns, blocks)


def order(index: int, rows: int, cols: int) -> tuple[int, int]:
    """TileOrder::at of tileorder.cuh, for one product."""
    band, left = divmod(index, BAND * cols)
    height = min(BAND, rows - band * BAND)
    return band * BAND + left % height, left // height


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 9), (9, 1), (8, 8), (7, 5), (17, 3), (23, 31)])
def test_the_order_of_tiles_takes_each_tile_once(rows: int, cols: int) -> None:
    taken = Counter(order(index, rows, cols) for index in range(rows * cols))
    assert taken == Counter(product(range(rows), range(cols)))


def test_tiles_under_way_at_a_time_are_a_patch_of_c() -> None:
    wave = [order(index, 64, 64) for index in range(64)]
    assert len({row for row, _ in wave}) == len({col for _, col in wave}) == BAND


def boxes(name: str, problem: str) -> dict[str, tuple[int, int]]:
    return {arg.operand: arg.box for arg in plan(name, problem).args if isinstance(arg, TensorMap)}


def test_boxes_are_128_bytes_wide_and_follow_the_layout() -> None:
    assert boxes("wgmma", "m512n512k64/f16/NT") == {"a": (128, 64), "b": (128, 64)}
    assert boxes("wgmma", "m512n512k64/f16/TN") == {"a": (64, 64), "b": (64, 64)}
    wide = "m8192n8192k64"
    assert boxes("wgmma_persistent", f"{wide}/f16.f32/NT") == {"a": (128, 64), "b": (128, 64), "c": (64, 32)}
    assert boxes("wgmma_persistent", f"{wide}/bf16/NN") == {"a": (128, 64), "b": (64, 64), "c": (64, 64)}
    assert boxes("wgmma_fp8", f"{wide}/e4m3.f32/NT") == {"a": (128, 128), "b": (64, 128), "c": (64, 32)}
    assert boxes("wgmma_fp8", f"{wide}/e4m3.bf16/NT") == {"a": (128, 128), "b": (64, 128), "c": (64, 64)}
    assert boxes("wgmma_int8", f"{wide}/s8.s32/NT") == {"a": (128, 128), "b": (128, 128), "c": (64, 32)}
    assert boxes(REGISTERS, f"{wide}/f32/NN") == {"b": (32, 32), "a": (128, 32), "c": (64, 32)}
    assert boxes(REGISTERS, f"{wide}/f32/TT") == {"a": (32, 32), "b": (128, 32), "c": (64, 32)}
    assert boxes(TURNED, f"{wide}/f32/TN") == {"a": (32, 32), "b": (32, 32), "c": (64, 32)}
    assert boxes("wgmma_tf32", f"{wide}/f32/NT") == {"a": (128, 32), "b": (128, 32), "c": (64, 32)}


def test_the_tma_rounds_to_tf32_what_is_read_and_nothing_else() -> None:
    one, three = (
        [(arg.operand, arg.tf32) for arg in plan(name, "m8n8k8/f32/NT").args if isinstance(arg, TensorMap)]
        for name in IN_F32
    )
    assert one == [("a", True), ("b", True), ("c", False)]
    assert three == [("a", False), ("b", False)]  # whose last bits are the small parts


@pytest.mark.parametrize("name", [*KERNELS, *OF_TF32])
def test_every_layout_compiles_without_spills_and_with_wgmma_in_flight(name: str, cuda_compiler: str) -> None:
    halves = zip(("f16", "bf16.f32", "f16.f32", "bf16"), LAYOUTS, strict=True)
    domain = kernel(name).domain
    variants = list(product(domain["dtype"], domain["layout"])) if "layout" in domain else list(halves)
    problems = [REGISTRY.problem(id_of(name, f"m8n8k16/{dtype}/{layout}")) for dtype, layout in variants]
    plans = [kernel(name).calls(problem, tile, H100) for problem, tile in product(problems, known_tiles(name))]
    lean(f"gemm/cuda.{name}", (entry for calls in plans for entry, _ in calls), "sm_90a")


def check(name: str, problem: str, *tiles: Tile) -> None:
    """Through the emulator, under each tile, whether or not the declaration would take it for so small a problem."""
    parsed = REGISTRY.problem(id_of(name, problem))
    assert kernel(name).refuses(parsed) is None
    every = [EmulatedCase(kernel(name), parsed, tile) for tile in tiles]
    assert not wrong_in_emulator(every)


RAGGED = "alpha2/beta0.5/batch2/lda+8/ldb+16/ldc+8"
PAIRS = Tile(BN=128, STAGES=3, CLUSTER=2, SMS=4)  # two clusters for several tiles each
ALONE = Tile(BN=64, STAGES=2, CLUSTER=1, SMS=3)


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_block_a_tile_is_right_in_every_layout(layout: str) -> None:
    check("wgmma", f"m136n136k200/bf16/{layout}/{RAGGED}", *known_tiles("wgmma"))


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_persistent_grid_is_right_in_every_layout(layout: str) -> None:
    check("wgmma_persistent", f"m264n136k264/f16/{layout}/{RAGGED}", PAIRS, ALONE)


@pytest.mark.long
@pytest.mark.parametrize("name", ["wgmma", "wgmma_splitk"])
@pytest.mark.parametrize("scaled", ["", "/alpha2/beta0.5"])
def test_half_a_pair_at_the_end_of_a_row_is_right(name: str, scaled: str) -> None:
    """Rows of C end in an odd element, and what follows it must not be written."""
    check(name, f"m133n133k72/bf16.f32/NN{scaled}/ldb+3/ldc+3", *known_tiles(name)[-1:])
    check(name, f"m133n133k72/f16/TT{scaled}/lda+3/ldc+3", *known_tiles(name)[-1:])


@pytest.mark.long
def test_the_last_of_several_bands_of_tiles_is_right() -> None:
    check("wgmma_persistent", "m1160n72k8/bf16/NT", ALONE)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        ("wgmma_tf32", (PAIRS, ALONE)),
        ("wgmma_3xtf32", [Tile(**vars(tile), REGISTERS=0) for tile in (PAIRS, ALONE)]),
        ("wgmma_3xtf32", [Tile(**vars(PAIRS) | {"STAGES": stages}, REGISTERS=1) for stages in (2, 3)]),
    ],
    ids=["tf32", "3xtf32", "3xtf32 from registers"],
)
@pytest.mark.parametrize("depth", ["k132/f32/NT/alpha2/beta0.5/batch2/lda+4", "k100/f32/NT/beta0.5"])
def test_tf32_is_right_over_the_edges_of_tiles(name: str, tiles: list[Tile], depth: str) -> None:
    """An odd and an even number of steps, of which products are promoted in turn."""
    check(name, f"m264n132{depth}/ldc+4", *tiles)


def test_half_of_a_tile_is_at_least_64_columns_where_a_is_split_in_registers() -> None:
    problem, three = REGISTRY.problem("gemm/m256n256k256/f32/NT"), kernel("wgmma_3xtf32")
    found = [three.unfit(problem, Tile(**vars(ALONE) | {"BN": width}, REGISTERS=1), H100) for width in (64, 128)]
    assert found == ["half of BN = 64 is multiplied at a time, expected at least 64 columns", None]


@pytest.mark.long
@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("depth", ["k132{}/alpha2/beta0.5/batch2/lda+4/ldb+4", "k100{}"])
def test_rows_from_registers_are_right_over_the_edges_of_tiles(layout: str, depth: str) -> None:
    """An odd and an even number of steps, of which rows lie in other registers each time."""
    check(REGISTERS, f"m264n132{depth.format(f'/f32/{layout}')}/ldc+4", PAIRS, ALONE)


@pytest.mark.long
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_the_widest_tile_with_rows_from_registers_is_right(layout: str) -> None:
    check(REGISTERS, f"m264n264k72/f32/{layout}", known_tiles(REGISTERS)[0])


@pytest.mark.long
@pytest.mark.parametrize("depth", ["k132/f32/TN/alpha2/beta0.5/batch2/lda+4/ldb+4", "k3/f32/TN"])
def test_turned_columns_are_right_over_the_edges_of_tiles(depth: str) -> None:
    """Less than a step too, and rows that the second half of a warpgroup lacks."""
    check(TURNED, f"m552n132{depth}/ldc+4", PAIRS, ALONE)


def test_rows_and_columns_meet_all_banks_as_they_are_turned() -> None:
    host_compiler()
    problem = REGISTRY.problem("gemm/m256n128k64/f32/TN")
    for tile in known_tiles(TURNED):
        total = count(kernel(TURNED), problem, tile, H100).total
        assert total.wavefronts == total.least_wavefronts > 0


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "tile"), [("e4m3.bf16", PAIRS), ("e5m2.f32", ALONE)])
@pytest.mark.parametrize("k", [272, 400])
def test_fp8_is_right_over_the_edges_of_tiles(dtype: str, tile: Tile, k: int) -> None:
    """An odd and an even number of steps, as for TF32."""
    check("wgmma_fp8", f"m264n136k{k}/{dtype}/NT/alpha2/beta0.5/batch2/lda+16/ldc+8", tile)


@pytest.mark.long
@pytest.mark.parametrize(
    "tile", [Tile(BN=256, STAGES=3, CLUSTER=2, SMS=4), PAIRS, ALONE], ids=lambda tile: f"{tile.BN}"
)
def test_integers_are_right_over_the_edges_of_tiles(tile: Tile) -> None:
    check("wgmma_int8", "m264n264k272/s8.s32/NT/batch2/lda+16/ldc+8", tile)


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "tile"), [("e4m3.bf16", PAIRS), ("e4m3.f32", ALONE)])
@pytest.mark.parametrize("k", [272, 528])
def test_scales_are_those_of_the_rows_columns_and_steps(dtype: str, tile: Tile, k: int) -> None:
    """Three and five steps, whose scales end in padding, as those of the rows do."""
    check(BLOCKS, f"m262n264k{k}/{dtype}/NT/alpha2/beta0.5/batch2/ldc+8", tile)


def test_scales_are_arguments_of_the_kernel_that_has_them_alone() -> None:
    sizes = "m8n8k16/e4m3.f32/NT"
    without, with_scales = plan("wgmma_fp8", sizes), plan(BLOCKS, sizes)
    assert with_scales.args == (*without.args, "scale_a", "scale_b")
    assert with_scales.entry == without.entry.replace(">", ", const float *, const float *>")


@pytest.mark.long
@pytest.mark.parametrize(("problem", "tile"), [("f16.f32/NN/beta0.5/ldc+8", PAIRS), ("bf16/NT/alpha2/ldb+8", ALONE)])
def test_groups_end_within_tiles_of_a_cluster_and_of_a_block(problem: str, tile: Tile) -> None:
    """Multiply groups of 549, 275 and 184 rows."""
    check(GROUPED, f"m1008n136k72/{problem}", tile)


def test_a_launch_knows_where_rows_and_tiles_of_each_group_end() -> None:
    sizes, tile = "m1008n136k72/bf16/NT", Tile(BN=128, STAGES=3, CLUSTER=2, SMS=132)
    call = plan(GROUPED, sizes, tile)
    found = call.args[-1]
    assert (found["count"], found["rows"][:4].tolist(), found["tiles"][:4].tolist()) == (
        *(3, [549, 824, 1008, 0]),
        [3, 5, 6, 0],
    )
    assert call.grid == 2 * 6 * 2
    assert "257 groups, expected at most 256" in refusal_of("gemm/cuda.wgmma_grouped", f"gemm/{sizes}/groups257-equal")


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_of_unequal_depth_add_up(layout: str) -> None:
    """Three slices of five steps: two, two and one."""
    sizes, tiles = (
        f"m136n72k264/f16/{layout}/{RAGGED}",
        [Tile(**vars(t) | {"SMS": 24, "DEPTH": 64}) for t in (PAIRS, ALONE)],
    )
    assert [plan("wgmma_splitk", sizes, tile).args[-2:] for tile in tiles] == [(2, 3), (2, 3)]
    check("wgmma_splitk", sizes, *tiles)


@pytest.mark.long
def test_the_widest_tile_is_right() -> None:
    check("wgmma_persistent", "m264n264k328/bf16/NT", known_tiles("wgmma_persistent")[0])
