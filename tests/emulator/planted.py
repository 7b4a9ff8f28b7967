"""How each file of the corpus is launched, and what comes out of it where it is right."""

from collections.abc import Callable

import numpy as np

from bench.emulator.worker import Buffer, Launch
from emulator.planted_parts import F32, Setup, given, operand, output, tensor, zeros


def sgemm_tiled() -> Setup:
    m, n, k = 40, 44, 36
    a, b = given(m, k), given(k, n)
    launch = Launch("sgemm", (3, 3), (16, 16), ("a", "b", "c", m, n, k))
    return Setup("sgemm", {"a": operand(a), "b": operand(b), "c": output(m * n)}, launch, {"c": (a @ b, 0)})


def sgemm_pipelined() -> Setup:
    entry, m, n, k = "sgemm<32, 32, 8, 4, 4>", 64, 64, 32
    a, b = given(m, k), given(k, n)
    launch = Launch(entry, (2, 2), 64, ("a", "b", "c", n, k), shared_bytes=2 * 8 * 64 * 4)
    return Setup(entry, {"a": operand(a), "b": operand(b), "c": output(m * n)}, launch, {"c": (a @ b, 0)})


def transpose_tiled() -> Setup:
    m, n = 70, 50
    a = given(m, n)
    launch = Launch("transpose<float>", (2, 3), (32, 8), ("a", "b", m, n))
    return Setup("transpose<float>", {"a": operand(a), "b": output(m * n)}, launch, {"b": (a.T, 0)})


def transpose_inplace() -> Setup:
    n = 40
    a = given(n, n)
    launch = Launch("transpose_inplace", (3, 3), (16, 16), ("a", n))
    return Setup("transpose_inplace", {"a": Buffer("inout", a.ravel())}, launch, {"a": (a.T, 0)})


def reduce() -> Setup:
    x = given(1000)
    launch = Launch("reduce", 3, 128, ("x", "out", x.size))
    return Setup("reduce", {"x": operand(x), "out": zeros(1)}, launch, {"out": (x.sum(keepdims=True), 0)})


def reduce_warp() -> Setup:
    x = given(64)
    launch = Launch("reduce", 1, 64, ("x", "out"))
    return Setup("reduce", {"x": operand(x), "out": output(1)}, launch, {"out": (x.sum(keepdims=True), 0)})


def signs() -> Setup:
    rows, cols = 3, 100
    x = given(rows, cols)
    bits = np.zeros((rows, 128), np.uint32)
    bits[:, :cols] = x >= 0
    words = (bits.reshape(rows, 4, 32) << np.arange(32, dtype=np.uint32)).sum(2).astype(np.uint32)
    launch = Launch("signs", rows, 64, ("x", "bits", cols))
    return Setup("signs", {"x": operand(x), "bits": output(rows * 4, np.uint32)}, launch, {"bits": (words, 0)})


def histogram() -> Setup:
    x = np.random.default_rng(3).integers(0, 256, 500, np.uint8)
    counts = np.bincount(x % 16, minlength=16)
    launch = Launch("histogram", 2, 64, ("x", "counts", x.size))
    return Setup("histogram", {"x": operand(x), "counts": zeros(16, np.uint32)}, launch, {"counts": (counts, 0)})


def conv3x3() -> Setup:
    h, w = 20, 45
    x, taps = given(h, w), given(9)
    padded = np.pad(x, 1)
    want = sum(taps[i] * padded[i // 3 : i // 3 + h, i % 3 : i % 3 + w] for i in range(9))
    launch = Launch("conv3x3", (2, 3), (32, 8), ("in", "out", h, w))
    buffers = {"in": operand(x), "out": output(h * w)}
    return Setup("conv3x3", buffers, launch, {"out": (np.asarray(want), 0)}, {"filter": taps})


def hgemm_pipelined() -> Setup:
    m, n, k = 32, 32, 64
    a, b = given(m, k).astype(np.float16), given(k, n).astype(np.float16)
    launch = Launch("hgemm", (n // 8, m // 16), 32, ("a", "b", "c", n, k))
    want = a.astype(F32) @ b.astype(F32)
    return Setup("hgemm", {"a": operand(a), "b": operand(b), "c": output(m * n)}, launch, {"c": (want, 0)})


def hgemm_wmma() -> Setup:
    m, n, k = 32, 48, 64
    a, b = given(m, k).astype(np.float16), given(k, n).astype(np.float16)
    launch = Launch("hgemm", (n // 16, m // 16), 32, ("a", "b", "c", n, k))
    want = 2 * (a.astype(F32) @ b.astype(F32))
    return Setup("hgemm", {"a": operand(a), "b": operand(b), "c": output(m * n)}, launch, {"c": (want, 0)})


def softmax_grid() -> Setup:
    x = np.abs(given(150)) + 1
    launch = Launch("normalise", 3, 64, ("x", "partial", "out", x.size), cooperative=True)
    buffers = {"x": operand(x), "partial": Buffer("scratch", np.zeros(3, F32)), "out": output(x.size)}
    return Setup("normalise", buffers, launch, {"out": (x / x.sum(), 1e-7)})


def last_block() -> Setup:
    x = given(300)
    launch = Launch("sum", 4, 32, ("x", "partial", "ticket", "out", x.size))
    scratch = Buffer("scratch", np.zeros(4, F32))
    buffers = {"x": operand(x), "partial": scratch, "ticket": zeros(1, np.uint32), "out": output(1)}
    return Setup("sum", buffers, launch, {"out": (x.sum(keepdims=True), 0)})


def scan() -> Setup:
    x = given(64)
    launch = Launch("scan", 1, 64, ("x", "out"))
    return Setup("scan", {"x": operand(x), "out": output(64)}, launch, {"out": (np.cumsum(x), 0)})


def shift() -> Setup:
    x = given(96)
    launch = Launch("shift", 1, 96, ("x", "out", 96))
    return Setup("shift", {"x": operand(x), "out": output(96)}, launch, {"out": (np.append(F32(0), x[:-1]), 0)})


def halves() -> Setup:
    n, a = 301, np.float16(0.5)
    x, y = given(2, n).astype(np.float16)
    launch = Launch("haxpy", 3, 64, (a, "x", "y", n))
    return Setup("haxpy", {"x": operand(x), "y": Buffer("inout", y)}, launch, {"y": (a * x + y, 0)})


def stencil3d() -> Setup:
    depth, height, width = 5, 9, 11
    x = given(depth, height, width)
    p = np.pad(x, 1)
    core = slice(1, -1)
    want = p[:-2, core, core] + p[2:, core, core] + p[core, :-2, core] + p[core, 2:, core]
    want = want + p[core, core, :-2] + p[core, core, 2:]
    launch = Launch("stencil", (2, 3, 3), (8, 4, 2), ("in", "out", depth, height, width))
    return Setup("stencil", {"in": operand(x), "out": output(x.size)}, launch, {"out": (want, 0)})


def split_k() -> Setup:
    m, k = 50, 61
    a, x = given(m, k), given(k)
    launch = Launch("gemv", (2, 3), 32, ("a", "x", "y", m, k))
    return Setup("gemv", {"a": operand(a), "x": operand(x), "y": zeros(m)}, launch, {"y": (a @ x, 0)})


def pyramid() -> Setup:
    x = given(32)
    launch = Launch("pyramid", 1, 32, ("x", "out"))
    return Setup("pyramid", {"x": operand(x), "out": output(32)}, launch, {"out": (np.full(32, x.sum()), 0)})


def lock() -> Setup:
    x = given(6)
    launch = Launch("total", 6, 32, ("x", "lock", "out"), cooperative=True)
    buffers = {"x": operand(x), "lock": zeros(1, np.uint32), "out": zeros(1)}
    return Setup("total", buffers, launch, {"out": (x.sum(keepdims=True), 0)})


def tma_ring() -> Setup:
    x = given(11, 64)
    launch = Launch("ring", 1, 96, (tensor("x", 11, 64, (64, 1)), "y", 11))
    return Setup("ring", {"x": operand(x), "y": output(x.size)}, launch, {"y": (2 * x, 0)})


def tma_transpose() -> Setup:
    m, n = 40, 68
    a = given(m, n)
    launch = Launch("transpose", (3, 2), 64, (tensor("a", m, n, (32, 32)), tensor("b", n, m, (32, 32))))
    return Setup("transpose", {"a": operand(a), "b": output(m * n)}, launch, {"b": (a.T, 0)})


def hgemm_wgmma() -> Setup:
    m, n, k = 64, 128, 320
    a, b = given(m, k).astype(np.float16), given(n, k).astype(np.float16)
    maps = (tensor("a", m, k, (64, 64), 2, 128), tensor("b", n, k, (64, 64), 2, 128))
    launch = Launch("hgemm", (2, 1), 160, (*maps, "c", n, k))
    want = a.astype(F32) @ b.astype(F32).T
    return Setup("hgemm", {"a": operand(a), "b": operand(b), "c": output(m * n)}, launch, {"c": (want, 0)})


def cluster_multicast() -> Setup:
    x = given(5, 32)
    launch = Launch("broadcast", 2, 32, (tensor("x", 5, 32, (32, 1)), "y", 5), cluster=2)
    return Setup("broadcast", {"x": operand(x), "y": output(2 * x.size)}, launch, {"y": (np.stack([x, x + 1]), 0)})


def named_barriers() -> Setup:
    x = np.random.default_rng(3).integers(-99, 99, 128).astype(np.int32)
    want = x.reshape(2, 64)[:, ::-1].ravel() + np.arange(3)[:, None]
    launch = Launch("reverse", 1, 128, ("x", "y"))
    return Setup("reverse", {"x": operand(x), "y": output(384, np.int32)}, launch, {"y": (want, 0)})


def cluster_gemm() -> Setup:
    m, n, k = 256, 128, 192
    a, b = given(m, k).astype(np.float16), given(k, n).astype(np.float16)
    maps = (tensor("a", m, k, (64, 64), 2, 128), tensor("b", k, n, (64, 64), 2, 128))
    launch = Launch("gemm", 2, 384, (*maps, "c", k), cluster=2)
    want = a.astype(F32) @ b.astype(F32)
    return Setup("gemm", {"a": operand(a), "b": operand(b), "c": output(m * n)}, launch, {"c": (want, 0)})


def swizzled_by_hand() -> Setup:
    a, b = given(2, 64, 64).astype(np.float16)
    want = a.astype(F32) @ b.astype(F32).T
    launch = Launch("product", 1, 128, ("a", "b", "c"))
    return Setup("product", {"a": operand(a), "b": operand(b), "c": output(want.size)}, launch, {"c": (want, 0)})


def narrow_swizzles() -> Setup:
    a, b = given(2, 64, 32).astype(np.float16)
    boxes = (((32, 64), 64), ((16, 64), 32), ((32, 64), 0), ((16, 64), 0), ((16, 64), 64))
    maps = [tensor("a", 64, 32, box, 2, swizzle) for box, swizzle in boxes]
    want = np.stack([a[:, :k].astype(F32) @ b[:, :k].astype(F32).T for k in (32, 16)])
    launch = Launch("products", 1, 128, (*maps, "b", "c"))
    return Setup("products", {"a": operand(a), "b": operand(b), "c": output(want.size)}, launch, {"c": (want, 0)})


def mbarrier_counts() -> Setup:
    x = given(4, 32)
    launch = Launch("copy", 1, 32, (tensor("x", 4, 32, (32, 1)), "y", 4))
    return Setup("copy", {"x": operand(x), "y": output(x.size)}, launch, {"y": (x, 0)})


SETUPS: dict[str, Callable[[], Setup]] = {
    f.__name__: f
    for f in (
        *(sgemm_tiled, sgemm_pipelined, transpose_tiled, transpose_inplace, reduce, reduce_warp, signs, histogram),
        *(conv3x3, hgemm_pipelined, hgemm_wmma, softmax_grid, last_block, scan, shift, halves, stencil3d, split_k),
        *(pyramid, lock, tma_ring, tma_transpose, hgemm_wgmma, cluster_multicast, named_barriers),
        *(cluster_gemm, swizzled_by_hand, narrow_swizzles, mbarrier_counts),
    )
}
