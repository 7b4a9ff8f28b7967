"""Kernels as users write them: each gives the same result as NumPy, or is refused in one line."""

import math
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from emulator.fixtures import outcomes_among, outputs_of, read, reports_of, together, written
from kernelmark.bench.cli.commands import cli
from kernelmark.bench.emulator.build import HostCompileError
from kernelmark.bench.emulator.worker import Buffer, Launch

ENTRIES = {file: together(file) for file in (Path(__file__).parent / "user").glob("*.cu")}
RNG = np.random.default_rng(5)
X = RNG.standard_normal(1024).astype(np.float32)
WORDS = RNG.integers(-(2**31), 2**31, 32).astype(np.int32)


def outputs(
    entry: str, grid: Any, block: Any, buffers: dict[str, Buffer], *values: float, repeats: bool = True, **options: int
) -> dict[str, Any]:
    """Return a kernel's outputs; values: the arguments after the buffers; options: fields of the Launch."""
    file = next(file for file, entries in ENTRIES.items() if entry in entries)
    return outputs_of(file, Launch(entry, grid, block, (*buffers, *values), **options), buffers, repeats)


def inout(array: Any) -> Buffer:
    return Buffer("inout", array)


def test_softmax_of_groups_and_dynamic_shared_memory() -> None:
    x = X[: 3 * 77].reshape(3, 77)
    y = outputs("softmax", 3, 64, {"x": read(x), "y": written(3 * 77)}, 77, shared_bytes=77 * 4)["y"].reshape(x.shape)
    want = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(y, want / want.sum(1, keepdims=True), rtol=1e-5)


def test_lanes_that_have_converged_take_places_together() -> None:
    x = RNG.integers(-9, 10, 150).astype(np.int32)
    buffers = {"x": read(x), "y": inout(np.zeros(150, np.int32)), "count": inout(np.zeros(1, np.int32))}
    arrays = outputs("filter", 3, 64, buffers, 150, repeats=False)
    assert arrays["count"][0] == (x > 0).sum()
    assert sorted(arrays["y"][: arrays["count"][0]]) == sorted(x[x > 0])


def test_tiles_of_tiles_reduce_scan_and_vote() -> None:
    x = (X[:64] * 8).round()
    y = outputs("tiles", 1, 64, {"x": read(x), "y": written(152)})["y"]
    fours = x.reshape(16, 4)
    assert np.array_equal(y[:8], x.reshape(8, 8).sum(1))
    assert np.array_equal(y[8:24], fours.sum(1))
    assert np.array_equal(y[24:88], fours.cumsum(1).ravel())
    votes = ((fours > 0) * [1, 2, 4, 8]).sum(1) + 16 * (fours > 50).any(1)
    assert np.array_equal(y[88:], np.repeat(votes, 4))


def test_blocks_copy_grids_sum_and_clusters_have_ranks() -> None:
    y = outputs("staged", 3, 32, {"x": read(X[:120]), "y": written(120)}, 40, shared_bytes=160)["y"]
    assert np.array_equal(y.reshape(3, 40), X[:120].reshape(3, 40)[:, ::-1])
    buffers = {"x": read(X), "partial": Buffer("scratch", np.zeros(3, np.float32)), "y": written(1)}
    y = outputs("grid_sum", 3, 32, buffers, 1000, cooperative=True)["y"]
    assert math.isclose(y[0], X[:1000].sum(), rel_tol=1e-4)
    y = outputs("ranks", 4, 32, {"y": written(4, np.int32)}, cluster=2)["y"]
    assert list(y) == [20, 21, 20, 21]


def test_blocks_reach_the_shared_memory_of_their_cluster() -> None:
    x = RNG.integers(0, 80, 500).astype(np.int32)
    buffers = {"x": read(x), "bins": inout(np.zeros(80, np.int32))}
    bins = outputs("cluster_histogram", 4, 64, buffers, 500, 40, shared_bytes=160, cluster=2)["bins"]
    assert np.array_equal(bins, np.bincount(x, minlength=80))
    y = outputs("cluster_sum", 4, 32, {"x": read(X[:128]), "y": written(32)}, cluster=4)["y"]
    assert np.allclose(y, X[:128].reshape(4, 32).sum(0), atol=1e-6)


CLUSTER = """#include <cooperative_groups.h>
extern "C" __global__ void f(const float *x, float *y) {
  __shared__ float4 pad;
  __shared__ float s[32];
  auto cluster = cooperative_groups::this_cluster();
  s[threadIdx.x] = x[threadIdx.x];
  cluster.sync();
  float *other = cluster.map_shared_rank(s, cluster.block_rank() ^ 1);
  y[blockIdx.x * 32 + threadIdx.x] = other[threadIdx.x];
  cluster.sync();
}"""


_SWAP = "  for (int was, old = *at; (was = atomicCAS(at, old, 7)) != old;) old = was;"
#: Changes of the kernel: the old text, the new text, and the kind, line and message of the report, if any.
CHANGES = (
    ("y[", "y[", "", 0, ""),
    ("= other[threadIdx.x];", f"= 0;\n  auto *at = (int *)other;\n{_SWAP}", "", 0, ""),
    ("x];\n  cluster.sync();\n  f", "x];\n  __syncthreads();\n  f", "shared-address", 9, "before a cluster barrier"),
    ("x];\n  cluster.sync();\n}", "x];\n}", "early-exit", 9, "after that block has exited"),
    ("other[threadIdx", "other[1 + threadIdx", "out-of-bounds", 9, "s+128, but s has 128 bytes"),
    ("rank() ^ 1)", "rank() + 1)", "shared-address", 8, "block 2 of a cluster of 2"),
    ("\n  float *", "\n  s[threadIdx.x] += 1;\n  float *", "race", 10, "read after write on s+"),
)


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_faults_in_the_shared_memory_of_another_block_are_named(number: int) -> None:
    was, _, kind, line, said = CHANGES[number]
    assert was in CLUSTER
    texts = {i: CLUSTER.replace(was, now, 1) for i, (was, now, *_) in enumerate(CHANGES)}
    launch, buffers = Launch("f", 2, 32, ("x", "y"), cluster=2), {"x": read(X[:32]), "y": written(64)}
    outcomes = outcomes_among(texts, number, launch, buffers)
    reports = [report for outcome in outcomes for report in outcome.reports]
    named = [report for report in reports if (report.kind, report.line) == (kind, line) and said in report.message]
    assert named if kind else not reports, reports


def test_cached_loads_and_stores_of_asm_move_vectors() -> None:
    y = outputs("copy", 4, 64, {"x": read(X[:1000]), "y": written(1000)}, 250)["y"]
    assert np.array_equal(y, X[:1000])


def test_product_of_cp_async_ldmatrix_and_mma_of_asm() -> None:
    a, b = (X[: size * 48].reshape(size, 48).astype(np.float16) for size in (21, 11))
    c = outputs("product", (2, 2), 32, {"a": read(a), "b": read(b), "c": written(231)}, 21, 11, 48)["c"].reshape(21, 11)
    assert np.allclose(c, a.astype(np.float32) @ b.T.astype(np.float32), rtol=1e-3, atol=1e-3)


def test_single_instructions_of_asm() -> None:
    x, lane = WORDS.view(np.uint32), np.arange(32, dtype=np.uint32)
    y = outputs("singles", 1, 32, {"x": read(x), "y": written(9 * 32, np.uint32)})["y"]
    want = [x >> 4 & 255, x ^ lane ^ 7, x.byteswap(), x[lane ^ 1], (x + 1) * 3, x > 1 << 20]
    want += [np.full(32, 0x3F000000), lane + x, x - lane]
    assert np.array_equal(y.reshape(9, 32), np.array(want).astype(np.uint32))


def test_products_and_sums_of_several_words_by_asm() -> None:
    x, lane = WORDS.view(np.uint32), np.arange(32)
    y = outputs("words", 1, 32, {"x": read(x), "y": written(8 * 32, np.uint32)})["y"]
    a, b = [int(v) for v in x], [int(v) for v in x[lane ^ 1]]
    s, t = [int(v) for v in WORDS], [int(v) for v in WORDS[lane ^ 1]]
    pairs = list(zip(a, b, s, t, strict=True))
    want = [
        [(a * b, a * b >> 32, s * t >> 32, (s * t + 2**33) >> 32), (a + b, a + 5 + (a + b >> 32)), (a * b + a >> 32,)]
        for a, b, s, t in pairs
    ]
    rows = [[value % 2**32 for part in row for value in part] for row in want]
    assert np.array_equal(y.reshape(8, 32).T[:, :7], rows)
    assert np.array_equal(y.reshape(8, 32)[7], (x > 1 << 20) & (x < x[lane ^ 1]))


def test_histogram_by_red_and_largest_by_compare_and_swap_of_double() -> None:
    x = np.abs(X[:200]) % 1
    buffers = {"x": read(x), "bins": inout(np.zeros(8, np.uint32)), "most": inout(np.zeros(1))}
    arrays = outputs("counted", 4, 64, buffers, 200)
    assert np.array_equal(arrays["bins"], np.bincount((x * 8).astype(int), minlength=8))
    assert arrays["most"][0] == x.max()


def test_functions_of_bits_and_conversions() -> None:
    y = outputs("bits", 1, 32, {"x": read(WORDS), "y": written(256, np.int64)})["y"].reshape(32, 8)
    parts = WORDS.view(np.int8).reshape(32, 4).astype(int)
    assert np.array_equal(y[:, 0], parts @ [-128, 127, -1, 1] + 5)
    assert [64 - int(a & 0xFFFFFF).bit_length() for a in WORDS] == list(y[:, 1])
    assert [(int(a) & -int(a)).bit_length() + 20 for a in WORDS] == list(y[:, 2])
    assert np.array_equal(y[:, 5], WORDS)
    assert (y[:, 6] == 1).all()
    unsigned = np.rint(np.maximum(WORDS * np.float32(1e-3), 0))
    assert np.array_equal(y[:, 7], unsigned.astype(int) + np.maximum(3, WORDS & 7) + 1)


def test_functions_of_reals() -> None:
    y = outputs("reals", 2, 64, {"x": read(X[:100]), "y": written(100)}, 100)["y"]
    x = X[:100].astype(np.float64)
    assert np.allclose(y, np.sin(x) + 1 / np.sqrt(1 + x * x) + 2**x + [math.erf(v) for v in x], rtol=1e-5)


def test_conversions_to_fp8_and_back() -> None:
    x = np.concatenate([X[:90] * 100, [0, -0.0, 1e-9, 2e-3, 448, 464, 465, 6e4, 57344, 1e9]]).astype(np.float32)
    y = outputs("bytes", 2, 64, {"x": read(x), "y": written(300)}, 100)["y"].reshape(3, 100)
    for row, kind, most in ((y[0], ml_dtypes.float8_e4m3fn, 448), (y[1], ml_dtypes.float8_e5m2, 57344)):
        assert np.array_equal(row, np.clip(x, -most, most).astype(kind).astype(np.float32))
    assert (y[2] == 0).all()


def test_layer_norm_of_halves() -> None:
    x, scale = X[:192].reshape(3, 64).astype(np.float16), X[:64].astype(np.float16)
    buffers = {"x": read(x), "scale": read(scale), "y": written(192, np.float16)}
    y = outputs("layer_norm", 3, 64, buffers, 32, 1e-5)["y"].reshape(3, 64)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale
    assert np.allclose(y, want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", ["__half2", "__nv_bfloat162"])
def test_halves_of_pairs_are_doubled_exchanged_and_joined(kind: str) -> None:
    buffers = {"x": read(np.arange(1, 5, dtype=np.uint16)), "y": written(12, np.uint16)}
    y = outputs(f"pairs<{kind}>", 1, 1, buffers)["y"]
    assert y.reshape(6, 2).tolist() == [[1, 1], [2, 2], [1, 3], [2, 4], [2, 1], [4, 3]]


def test_atomics_on_pairs_of_halves_are_no_races() -> None:
    x = np.arange(6, dtype=np.float16)
    y = outputs("added<__half2>", 1, 3, {"x": read(x), "y": inout(np.zeros(2, np.float16))})["y"]
    assert y.tolist() == [6, 9]


@pytest.mark.parametrize(
    ("entry", "shared", "order"), [("thread_pipeline", 0, 1), ("block_pipeline", 512, -1), ("barriers", 0, -1)]
)
def test_pipelines_and_barriers_of_libcu(entry: str, shared: int, order: int) -> None:
    y = outputs(entry, 1, 64, {"x": read(X[:320]), "y": written(64)}, 5, shared_bytes=shared)["y"]
    assert np.allclose(y, X[:320].reshape(5, 64).sum(0)[::order], rtol=1e-5, atol=1e-5)


def test_primitives_of_pipelines_and_atomics_of_libcu() -> None:
    y = outputs("primitives", 1, 32, {"x": read(X[:128]), "y": written(128)})["y"]
    assert np.array_equal(y.reshape(32, 4), X[:128].reshape(32, 4)[::-1])
    x = RNG.integers(0, 99, 100).astype(np.int32)
    y = outputs("counters", 2, 64, {"x": read(x), "y": inout(np.zeros(2, np.int32))}, 100)["y"]
    assert list(y) == [x.sum(), x.max()]


def product(m: int, n: int, k: int, kind: Any, c: Buffer, entry: str, grid: Any, block: Any, *values: int) -> Any:
    a, b = X[: m * k].reshape(m, k).astype(kind), X[-k * n :].reshape(k, n).astype(kind)
    c_after = outputs(entry, grid, block, {"a": read(a), "b": read(b), "c": c}, *values)["c"].reshape(m, n)
    return c_after, a.astype(np.float64) @ b.astype(np.float64)


def test_product_by_wmma_with_an_activation_of_its_fragments() -> None:
    before = X[: 32 * 64 // 2].repeat(2)
    c_after, want = product(32, 64, 16, np.float16, inout(before), "wmma_gemm", (2, 1), 128, 32, 64, 16)
    want = want + before.reshape(32, 64)
    assert np.allclose(c_after, np.where(want > 0, want, 0.01 * want), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("entry", "m", "n", "k", "sizes"),
    [("cp_async_gemm", 19, 21, 37, (19, 21, 37)), ("pipeline_gemm", 16, 16, 64, (16, 64))],
)
def test_products_of_copies_that_are_waited_for(entry: str, m: int, n: int, k: int, sizes: tuple[int, ...]) -> None:
    grid = (-(-n // 16), -(-m // 16))
    c_after, want = product(m, n, k, np.float32, written(m * n), entry, grid, (16, 16), *sizes)
    assert np.allclose(c_after, want, rtol=1e-4, atol=1e-4)


def test_attention_with_a_softmax_as_scores_come() -> None:
    q, k, v = X[:128].reshape(2, 64), X[128:448].reshape(5, 64), X[448:768].reshape(5, 64)
    buffers = {"q": read(q), "k": read(k), "v": read(v), "o": written(128)}
    o = outputs("attention", 1, 64, buffers, 5, 0.125)["o"].reshape(2, 64)
    p = np.exp(q.astype(np.float64) @ k.T * 0.125)
    assert np.allclose(o, p / p.sum(1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


def test_stencils_with_halos_in_shared_memory() -> None:
    out = outputs("stencil_1d", 3, 64, {"x": read(X[:150]), "y": written(150)}, 150)["y"]
    assert np.allclose(out, np.convolve(X[:150], [0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05], "same"), atol=1e-6)
    x = X[: 5 * 9 * 19].reshape(5, 9, 19)
    out = outputs("stencil_3d", (2, 2), (16, 8), {"x": read(x), "y": written(x.size)}, 19, 9, 5)["y"].reshape(x.shape)
    padded = np.pad(x.astype(np.float64), 1)
    sides = [np.roll(padded, by, axis) for axis in range(3) for by in (-1, 1)]
    assert np.allclose(out, (sum(sides) - 6 * padded)[1:-1, 1:-1, 1:-1], atol=1e-5)


def test_rms_norm_by_warp_shuffles() -> None:
    x, w = X[:231].reshape(3, 77).astype(np.float16), X[231:308].astype(np.float16)
    buffers = {"x": read(x), "w": read(w), "y": written(231, np.float16)}
    y = outputs("rms_norm", 3, 64, buffers, 77, 1e-5)["y"].reshape(3, 77)
    wide = x.astype(np.float64)
    assert np.allclose(y, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * w, rtol=1e-2, atol=1e-2)


def test_scans_of_a_block_and_of_blocks_that_look_back() -> None:
    x = RNG.integers(-99, 99, 256).astype(np.int32)
    buffers = {"x": read(x), "y": written(256, np.int32), "totals": written(2, np.int32)}
    arrays = outputs("block_scan", 2, 64, buffers)
    halves = x.reshape(2, 128)
    assert np.array_equal(arrays["y"].reshape(2, 128), halves.cumsum(1) - halves)
    assert np.array_equal(arrays["totals"], halves.sum(1))
    buffers = {"x": read(x), "y": written(250, np.int32), "states": inout(np.zeros(4, np.uint64))}
    buffers["ticket"] = inout(np.zeros(1, np.uint32))
    y = outputs("look_back", 4, 64, buffers, 250, repeats=False)["y"]
    assert np.array_equal(y, x[:250].cumsum())


def test_sums_of_segments_and_a_bitonic_sort() -> None:
    keys, values = np.sort(RNG.integers(0, 12, 100)).astype(np.int32), (X[:100] * 64).round()
    buffers = {"k": read(keys), "v": read(values), "s": inout(np.zeros(12, np.float32))}
    sums = outputs("segmented", 2, 64, buffers, 100)["s"]
    assert np.array_equal(sums, np.bincount(keys, values, 12))
    x = outputs("bitonic_sort", 1, 256, {"x": inout(X[:256].copy())})["x"]
    assert np.array_equal(x, np.sort(X[:256]))


def test_quantisation_to_fp8_with_a_scale_a_row() -> None:
    x = X[:160].reshape(2, 80)
    buffers = {"x": read(x), "y": written(160, np.uint8), "scales": written(2)}
    arrays = outputs("quantise", 2, 32, buffers, 20)
    y = arrays["y"].view(ml_dtypes.float8_e4m3fn).astype(np.float32).reshape(2, 80)
    assert np.allclose(arrays["scales"], np.abs(x).max(1) / 448)
    assert np.allclose(y * arrays["scales"][:, None], x, rtol=1 / 16, atol=1e-2)


def test_transposes_of_a_batch_by_tiles_of_eight_lanes() -> None:
    y = outputs("shuffle", 2, 32, {"x": read(X[:512]), "y": written(512)})["y"]
    assert np.array_equal(y.reshape(8, 8, 8), X[:512].reshape(8, 8, 8).swapaxes(1, 2))


def test_digits_of_a_radix_sort_and_the_largest_double() -> None:
    keys = WORDS.view(np.uint32).repeat(5)
    bins = outputs("select", 2, 64, {"keys": read(keys), "bins": inout(np.zeros(16, np.uint32))}, 160, 8)["bins"]
    assert np.array_equal(bins, np.bincount(keys >> 8 & 15, minlength=16))
    x = X[:100].astype(np.float64)
    most = outputs("largest", 2, 64, {"x": read(x), "y": inout(np.full(1, -np.inf))}, 100)["y"]
    assert most[0] == x.max()


def test_names_of_the_standard_library_of_the_device() -> None:
    y = outputs("limits", 1, 4, {"x": read(X[:64]), "y": written(16)}, 64)["y"].reshape(4, 4)
    assert [y[i, i] for i in range(4)] == [X[i:64:4].max() for i in range(4)]
    assert (y[~np.eye(4, dtype=bool)] == np.finfo(np.float32).min).all()


PLUGIN = """
from kernelmark import KernelCall, cuda_kernel

@cuda_kernel("transpose", source="{folder}/mine.cu", entry="mine", dtypes=("f32",), places=("out",), batchs=(1,),
             numerics="exact")
def {name}(p, t, device):
    return [KernelCall((-(-p.n // 32), -(-p.m // 8)), (32, 8), ("a", "b", p.m, p.n))]
"""
MINE = """
__global__ void mine(const float *a, float *b, int m, int n) {
  const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m && j < n) b[j * m + i] = a[i * n + j];
}"""


@pytest.mark.parametrize(
    ("text", "status", "verdicts"), [(MINE, 0, "PASS"), (MINE.replace("j < n", "true"), 1, "FAIL")]
)
def test_a_plugins_kernel_is_emulated_on_any_problem(tmp_path, text, status, verdicts) -> None:
    (tmp_path / "mine.cu").write_text(text)
    (tmp_path / "mine.py").write_text(PLUGIN.format(folder=tmp_path, name=verdicts))
    words = f"verify transpose/m41n70/f32/out --plugin {tmp_path}/mine.py --kernels *{verdicts} --emulated"
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == status, done.output
    assert [line.split()[:2] for line in done.output.splitlines()[3:6]] == [
        [order, verdicts] for order in ("forward", "reverse", "random")
    ]


def test_assert_that_fails_is_a_trap_with_its_line_and_condition() -> None:
    text = "#include <cassert>\n__global__ void f(float *y) {\n  assert(y == nullptr);\n}"
    (report,) = reports_of(text, Launch("f", 1, 1, ("y",)), {"y": written(1)})
    assert (report.kind, report.line, report.message) == ("trap", 3, "assert(y == nullptr)")


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("#include <cub/cub.cuh>", "", "kernel.cu:1: `cub/cub.cuh` is declared neither"),
        ('#include "ptx.cuh"', "ptx::stmatrix_x4(y, y);", "kernel.cu:4: `stmatrix_x4` is declared neither"),
        ("", "*y = __nanhf(*y);", "kernel.cu:4: `__nanhf` is declared neither"),
        ("", 'asm("vset2.u32 %0;" : "=f"(*y));', "kernel.cu:4: the emulator has no `vset2.u32` in asm"),
        ("", 'asm("addc.u32 %0, %0, 1;" : "+f"(*y));', "kernel.cu:4: the emulator has no `addc.u32` in asm"),
        ("__device__ float elsewhere(float);", "*y = elsewhere(*y);", "`elsewhere(float)` is declared neither"),
    ],
)
def test_what_the_emulator_lacks_is_named_in_one_line_with_its_page(head: str, body: str, said: str) -> None:
    text = f"{head}\n\n__global__ void f(float *y) {{\n{body}\n}}"
    with pytest.raises(HostCompileError, match=rf"^.*{re.escape(said)}.*; docs/emulator\.md lists its features\Z"):
        reports_of(text, Launch("f", 1, 1, ("y",)), {"y": written(1)})


def test_launch_of_a_kernel_is_refused_in_one_line() -> None:
    text = "__global__ void f(float *y) { *y = 0.0f; }\nint main() {\n  f<<<1, 32>>>(nullptr);\n}"
    with pytest.raises(HostCompileError, match=r"^.*kernel\.cu:3: `<<<` launches a kernel, .* \(docs/emulator\.md\)\Z"):
        reports_of(text, Launch("f", 1, 1, ("y",)), {"y": written(1)})
