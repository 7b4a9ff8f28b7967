"""wgmma kernels: what they refuse, which tile they take, that ring and order of tiles lose and repeat nothing."""

from collections import Counter
from itertools import product

import pytest

from kernelmark.bench.plan.kernel import CudaKernel, KernelCall, TensorMap, Tile
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.tune.profile.counted import count
from support.emulated import host_compiler
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


@pytest.mark.parametrize("name", [*KERNELS, *OF_TF32])
def test_only_hopper_has_wgmma(name: str) -> None:
    runs = [arch for arch in ("sm_80", "sm_89", "sm_90a", "sm_100", "sm_120") if kernel(name).runs_on(arch)]
    assert runs == ["sm_90a"]


@pytest.mark.parametrize("name", [*KERNELS, *OF_TF32])
def test_a_block_fits_into_shared_memory(name: str) -> None:
    problem = f"m1024n1024k1024/{dtype_of(name)}/{layout_of(name)}"
    limit = H100.block_shared_bytes - 256  # mbarriers stand beside the dynamic part
    assert all(plan(name, problem, tile).shared_bytes <= limit for tile in known_tiles(name))


def known_tiles(name: str) -> list[Tile]:
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


ALONE = Tile(BN=64, STAGES=2, CLUSTER=1, SMS=3)


def test_half_of_a_tile_is_at_least_64_columns_where_a_is_split_in_registers() -> None:
    problem, three = REGISTRY.problem("gemm/m256n256k256/f32/NT"), kernel("wgmma_3xtf32")
    found = [three.unfit(problem, Tile(**vars(ALONE) | {"BN": width}, REGISTERS=1), H100) for width in (64, 128)]
    assert found == ["half of BN = 64 is multiplied at a time, expected at least 64 columns", None]


def test_rows_and_columns_meet_all_banks_as_they_are_turned() -> None:
    host_compiler()
    problem = REGISTRY.problem("gemm/m256n128k64/f32/TN")
    for tile in known_tiles(TURNED):
        total = count(kernel(TURNED), problem, tile, H100).total
        assert total.wavefronts == total.least_wavefronts > 0


def test_scales_are_arguments_of_the_kernel_that_has_them_alone() -> None:
    sizes = "m8n8k16/e4m3.f32/NT"
    without, with_scales = plan("wgmma_fp8", sizes), plan(BLOCKS, sizes)
    assert with_scales.args == (*without.args, "scale_a", "scale_b")
    assert with_scales.entry == without.entry.replace(">", ", const float *, const float *>")


def test_a_launch_knows_where_rows_and_tiles_of_each_group_end() -> None:
    sizes, tile = "m1008n136k72/bf16/NT", Tile(BN=128, STAGES=3, CLUSTER=2, SMS=132)
    call = plan(GROUPED, sizes, tile)
    found = call.args[-1]
    assert (found["count"], found["rows"][:4].tolist(), found["tiles"][:4].tolist()) == (
        *(3, [549, 824, 1008, 0]),
        [3, 5, 6, 0],
    )
    assert call.grid == 2 * 6 * 2
