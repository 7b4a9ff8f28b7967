"""GEMM on tensor cores: tiles by size, copies by alignment, the order of tiles, boxes of the TMA, exactness of TF32."""

from itertools import cycle, islice, product

import numpy as np
import pytest

from emulator.fixtures import first_short
from kernelmark.bench.emulator.build import CUDA as SOURCES
from kernelmark.bench.emulator.build import program
from kernelmark.bench.emulator.sweep import EmulatedCase, launches
from kernelmark.bench.emulator.worker import Buffer, run
from kernelmark.bench.measure.compile import ARCHS
from kernelmark.bench.plan.kernel import TensorMap, Tile
from kernelmark.bench.plan.limits import H100, TYPICAL
from kernelmark.bench.tune.profile.counted import counts_of
from support.emulated import host_compiler, program_entries, wrong_in_emulator
from support.kernels import CUDA, LAYOUTS, REGISTRY, WGMMA, WGMMA_WORDS, cases, chosen, lean

PIPELINED = ("mma", "mma_tf32", "mma_3xtf32", "mma_f64")


def kernel(name):
    return CUDA[f"gemm/cuda.{name}"]


def storage(name):
    return str(kernel(name).domain["dtype"][0])


def emulated_product(name, a, b, tile=0):
    """Return C = A B in FP32 from an emulated kernel, which must not report anything; B is transposed for NT.

    tile: its place among those that the kernel prefers.
    """
    host_compiler()
    (m, k), n = a.shape, b.shape[1]
    along_k = "NN" not in kernel(name).domain["layout"]
    case = cases(f"gemm/cuda.{name}", f"gemm/m{m}n{n}k{k}/f32/{'NT' if along_k else 'NN'}")[tile]
    stored = np.ascontiguousarray(b.T) if along_k else b
    c = np.full(m * n, np.nan, np.float32)
    buffers = {"a": Buffer("in", a.ravel()), "b": Buffer("in", stored.ravel()), "c": Buffer("out", c)}
    planned = list(launches(case, buffers))
    worker = program(SOURCES / case.kernel.source, program_entries([case]))
    (outcome,) = run(worker, buffers, planned, orders=("forward",))
    assert not outcome.reports
    return outcome.outputs["c"].reshape(m, n)


def uniform(rows, cols):
    return np.random.default_rng(rows).uniform(-1.0, 1.0, (rows, cols)).astype(np.float32)


@pytest.mark.parametrize("name", PIPELINED)
def test_tiles_are_small_only_where_larger_ones_would_leave_half_of_a_device_idle(name):
    problems = (f"gemm/m{size}n{size}k64/{storage(name)}/NN" for size in (1, 1000, 4096))
    assert [chosen(f"gemm/cuda.{name}", problem).tile.BM for problem in problems] == [64, 64, 128]


@pytest.mark.parametrize("name", PIPELINED)
def test_founding_product_has_tiles_for_nearly_all_multiprocessors_of_an_h100(name):
    case = chosen(f"gemm/cuda.{name}", f"gemm/m1024n2048k26752/{storage(name)}/NT")
    assert (case.tile.BM, case.tile.BN) == (128, 128)
    assert case.calls[0][1].grid == (16, 8, 1)


@pytest.mark.parametrize("name", PIPELINED[:3])
@pytest.mark.parametrize(
    ("sizes", "nbytes"),
    [
        ("m64n64k64/{}/NT", 16),
        ("m63n61k64/{}/NT", 16),
        ("m64n64k64/{}/NT/ldc+1", 16),
        ("m64n64k63/{}/NT/lda+1/ldb+1", 16),
        ("m64n64k62/{}/NT", 4),
        ("m64n62k64/{}/NN", 4),
        ("m63n64k64/{}/TN/ldb+2", 0),
    ],
)
def test_copies_are_as_wide_as_the_leading_dimensions_of_a_and_b_allow(name, sizes, nbytes):
    dtype = storage(name)
    itemsize = 2 if dtype == "f16" else 4
    for case in cases(f"gemm/cuda.{name}", f"gemm/{sizes.format(dtype)}"):
        (entry, _), *_ = case.calls
        assert f", {max(nbytes // itemsize, 1)}, Op::" in entry


@pytest.mark.parametrize(
    ("sizes", "elements"),
    [("m63n61k64/f64/NT", 2), ("m64n64k63/f64/NT/lda+1/ldb+1", 2), ("m64n64k63/f64/NT", 1), ("m64n63k64/f64/TN", 1)],
)
def test_copies_of_fp64_are_of_two_elements_or_one(sizes, elements):
    for case in cases("gemm/cuda.mma_f64", f"gemm/{sizes}"):
        (entry, _), *_ = case.calls
        assert f", {elements}, Op::" in entry


@pytest.mark.parametrize(("capability", "rows"), [(80, 8), (89, 8), (90, 16), (100, 16)])
def test_fp64_is_multiplied_16_rows_at_once_from_hopper_on(capability, rows):
    problem, device = REGISTRY.problem("gemm/m64n64k64/f64/NN"), TYPICAL[capability]
    tile = kernel("mma_f64").tile_for(problem, device)
    (call,) = kernel("mma_f64").plan(problem, tile, device)
    assert f"<Double<{rows}>," in call.entry


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fp64_is_right_where_8_rows_are_multiplied_at_once(layout):
    problem = REGISTRY.problem(f"gemm/m67n41k37/f64/{layout}/alpha2/beta0.5/batch2/ldb+1")
    tested = cases("gemm/cuda.mma_f64", problem)
    assert not wrong_in_emulator([EmulatedCase(case.kernel, problem, case.tile, TYPICAL[80]) for case in tested])


def test_alpha_and_beta_of_fp64_are_passed_in_fp64():
    """In FP32, 1e-100 would be zero."""
    problem = REGISTRY.problem("gemm/m8n8k8/f64/NN/alpha0.1/beta1e-100")
    (call,) = kernel("mma_f64").plan(problem, next(kernel("mma_f64").tiles()), H100)
    assert [(type(x), float(x)) for x in call.args[6:8]] == [(np.float64, 0.1), (np.float64, 1e-100)]


def test_sums_of_16_bit_products_have_the_numerics_of_tensor_cores():
    for name in ("wmma", "mma"):
        for dtype in kernel(name).domain["dtype"]:
            problem = REGISTRY.problem(f"gemm/m1n1k1/{dtype}/NN")
            assert kernel(name).numerics_for(problem) == dtype.partition(".")[0]


@pytest.mark.parametrize(
    ("three", "single", "depths"),
    [
        ("mma_3xtf32", "mma_tf32", (8, 64, 613)),
        ("wgmma_3xtf32", "wgmma_tf32", (64, 616)),  # which truncates the operands instead of rounding them
    ],
)
def test_three_times_tf32_is_at_least_half_as_exact_as_fp32(three, single, depths):
    """Emulated tensor cores round sums, which real ones truncate: the errors here are those of the operands."""
    for k in depths:
        a, b = uniform(48, k), uniform(k, 40)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        fp32 = np.zeros_like(exact, np.float32)
        for i in range(k):
            fp32 += np.outer(a[:, i], b[i])
        every = ((three, 0), (three, -1), (single, 0))
        *errors, of_one = (np.abs(emulated_product(name, a, b, tile) - exact).mean() for name, tile in every)
        assert max(errors) <= 2 * np.abs(fp32 - exact).mean() < of_one


@pytest.mark.parametrize("name", ["mma_tf32", "mma_3xtf32"])
@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000])
def test_a_quiet_nan_reaches_its_row_of_c_and_no_other(name, bits):
    a, b = uniform(17, 9), uniform(9, 5)
    a.view(np.uint32)[3, 7] = bits
    assert np.isnan(emulated_product(name, a, b)).sum(axis=1).tolist() == [0] * 3 + [5] + [0] * 13


IN_F32 = ("wgmma_tf32", "wgmma_3xtf32")
BLOCKS, GROUPED = "wgmma_fp8_blocks", "wgmma_grouped"
REGISTERS, TURNED = "wgmma_tf32_registers", "wgmma_tf32_turned"
LAYOUT_OF = {REGISTERS: "NN", TURNED: "TN"}  # NT for the others
DTYPES = WGMMA | {REGISTERS: "f32", TURNED: "f32"}


def plan(name, problem, tile=None):
    parsed = REGISTRY.problem(id_of(name, problem))
    taken = tile or kernel(name).tile_for(parsed)
    call, *sums = kernel(name).plan(parsed, taken, H100)
    assert len(sums) == (name == "wgmma_splitk")
    return call


def id_of(name, problem):
    """The id of a product, which has scales or groups where the kernel is for these."""
    return f"gemm/{problem}{WGMMA_WORDS.get(name, '')}"


def test_only_hopper_has_wgmma():
    runs = {(name, arch) for name in DTYPES for arch in ARCHS if kernel(name).runs_on(arch)}
    assert runs == {(name, "sm_90a") for name in DTYPES}


def test_a_block_fits_into_shared_memory():
    limit = H100.block_shared_bytes - 256  # for the mbarriers, outside of the dynamic part
    for name in DTYPES:
        problem = f"m1024n1024k1024/{DTYPES[name]}/{LAYOUT_OF.get(name, 'NT')}"
        assert all(plan(name, problem, tile).shared_bytes <= limit for tile in kernel(name).tiles()), name


@pytest.mark.parametrize("name", ["wgmma_persistent", "wgmma_tf32", "wgmma_int8"])
@pytest.mark.parametrize(
    ("sizes", "columns"),
    [
        ("m4096n4096k64/{}/NT", 256),
        ("m4096n4096k4096/{}/NT", 256),
        ("m8192n8192k8192/{}/NT", 256),
        ("m1024n26752k2048/{}/NT", 128),  # 836 clusters in 13 waves of 66; tiles of 256: 420 in 7
        ("m1024n2048k26752/{}/NT", 128),  # 32 tiles of 256 x 256 would occupy 64 of 132 blocks
        ("m512n1024k64/{}/NT", 64),
        ("m512n512k512/{}/NT", 64),
        ("m100n104k64/{}/NT", 64),
        ("m264n264k8/{}/NT/batch64", 64),  # narrower tiles are less empty
    ],
)
def test_a_tile_is_taken_unless_the_waves_of_smaller_ones_take_less_time(name, sizes, columns):
    tile = kernel(name).tile_for(REGISTRY.problem(f"gemm/{sizes.format(DTYPES[name])}"))
    assert columns == tile.BN


@pytest.mark.parametrize("name", list(DTYPES)[1:])
def test_a_persistent_grid_is_whole_clusters_and_no_larger_than_device_or_work(name):
    for sizes, tile in product(("m1n8k16", "m300n520k16", "m4096n4096k64", "m40000n8k16"), kernel(name).tiles()):
        call = plan(name, f"{sizes}/{DTYPES[name]}/{LAYOUT_OF.get(name, 'NT')}", tile)
        assert call.cluster == tile.CLUSTER
        assert call.grid % tile.CLUSTER == 0
        assert 0 < call.grid <= max(tile.SMS, tile.CLUSTER)


def test_tiles_of_the_kernel_that_turns_columns_have_256_rows():
    tile = kernel(TURNED).tile_for(REGISTRY.problem("gemm/m4096n4096k64/f32/TN"))
    assert (tile.BN, tile.CLUSTER, plan(TURNED, "m4096n4096k64/f32/TN", tile).grid) == (128, 2, 132)
    assert plan(TURNED, "m1024n512k8/f32/TN", Tile(BN=128, STAGES=3, CLUSTER=2, SMS=132)).grid == 4 * 4
    assert kernel(TURNED).tile_for(REGISTRY.problem("gemm/m1024n2048k64/f32/TN")).BN == 64  # 64 tiles would be 128 wide


@pytest.mark.parametrize(("layout", "clusters"), [("NN", 2 * 8), ("TT", 4 * 4)])
def test_the_rows_of_a_cluster_are_those_in_registers(layout, clusters):
    """A cluster computes a tile of 256 x 128: of C in TT, and in NN of C's transpose, so that 256 is along n."""
    tile = Tile(BN=128, STAGES=3, CLUSTER=2, SMS=132)
    assert plan(REGISTERS, f"m1024n512k8/f32/{layout}", tile).grid == 2 * clusters
    assert plan(REGISTERS, f"m1024n128k8/f32/{layout}", tile).grid == 2 * {"NN": 8, "TT": 4}[layout]


@pytest.mark.parametrize(
    ("sizes", "columns", "blocks"),
    [
        ("m1024n2048k26752", 256, 128),  # two slices of each of 64 tiles
        ("m128n256k4096", 64, 128),  # 32 slices of each of four tiles
        ("m512n1024k64", 64, 64),
        ("m4096n4096k4096", 256, 132),  # one slice of each tile
    ],
)
def test_slices_of_k_fill_the_device_once(sizes, columns, blocks):
    tile = kernel("wgmma_splitk").tile_for(REGISTRY.problem(f"gemm/{sizes}/bf16/NT"))
    assert (tile.BN, plan("wgmma_splitk", f"{sizes}/bf16/NT", tile).grid) == (columns, blocks)


def boxes(name, problem):
    return {arg.operand: arg.box for arg in plan(name, problem).args if isinstance(arg, TensorMap)}


def test_boxes_are_128_bytes_wide_and_follow_the_layout():
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


def test_the_tma_rounds_to_tf32_only_the_operands_of_a_single_product():
    single, three = (
        [(arg.operand, arg.tf32) for arg in plan(name, "m8n8k8/f32/NT").args if isinstance(arg, TensorMap)]
        for name in IN_F32
    )
    assert single == [("a", True), ("b", True), ("c", False)]
    assert three == [("a", False), ("b", False)]  # the last bits of these are the small parts


def variants(name):
    """Return storage types with layouts, each at least once; the two do not depend on one another."""
    dtypes, layouts = (kernel(name).domain[axis] for axis in ("dtype", "layout"))
    return list(islice(zip(cycle(dtypes), cycle(layouts), strict=False), max(len(dtypes), len(layouts))))


# The widest tiles hold most sums in registers; test_declarations.py compiles the others for the first variant.
@pytest.mark.parametrize("name", first_short(DTYPES))
def test_every_layout_and_type_compiles_without_spills_and_with_wgmma_in_flight(name, cuda_compiler):
    problems = [REGISTRY.problem(id_of(name, f"m8n8k16/{dtype}/{layout}")) for dtype, layout in variants(name)]
    tiles = list(kernel(name).tiles())
    widest = [tile for tile in tiles if max(other.BN for other in tiles) == tile.BN]
    plans = [kernel(name).calls(problem, tile, H100) for problem, tile in product(problems, widest)]
    lean(f"gemm/cuda.{name}", (entry for calls in plans for entry, _ in calls), "sm_90a")


ALONE = Tile(BN=64, STAGES=2, CLUSTER=1, SMS=3)


def test_half_of_a_tile_is_at_least_64_columns_where_a_is_split_in_registers():
    problem, three = REGISTRY.problem("gemm/m256n256k256/f32/NT"), kernel("wgmma_3xtf32")
    reasons = [three.unfit(problem, Tile(**vars(ALONE) | {"BN": width}, REGISTERS=1), H100) for width in (64, 128)]
    assert reasons == ["half of BN = 64 is multiplied at a time, expected at least 64 columns", None]


@pytest.mark.parametrize(
    ("name", "problem"),
    [*(("mma_f64", f"m256n256k64/f64/{layout}") for layout in LAYOUTS), (TURNED, "m256n128k64/f32/TN")],
)
def test_panels_are_read_written_and_turned_without_bank_conflicts(name, problem):
    host_compiler()
    for tile in kernel(name).tiles():
        total = counts_of(EmulatedCase(kernel(name), REGISTRY.problem(f"gemm/{problem}"), tile)).total
        assert total.wavefronts == total.least_wavefronts > 0


def test_only_the_kernel_with_scales_takes_them_as_arguments():
    sizes = "m8n8k16/e4m3.f32/NT"
    without, with_scales = plan("wgmma_fp8", sizes), plan(BLOCKS, sizes)
    assert with_scales.args == (*without.args, "scale_a", "scale_b")
    assert with_scales.entry == without.entry.replace(">", ", const float *, const float *>")


def test_a_launch_gets_the_ends_of_the_rows_and_tiles_of_each_group():
    sizes, tile = "m1008n136k72/bf16/NT", Tile(BN=128, STAGES=3, CLUSTER=2, SMS=132)
    call = plan(GROUPED, sizes, tile)
    groups = call.args[-1]
    assert (groups["count"], groups["rows"][:4].tolist(), groups["tiles"][:4].tolist()) == (
        *(3, [549, 824, 1008, 0]),
        [3, 5, 6, 0],
    )
    assert call.grid == 2 * 6 * 2
