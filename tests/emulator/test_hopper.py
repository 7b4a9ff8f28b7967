"""TMA, im2col, mbarriers, clusters and wgmma, compared with NumPy and with results of real devices."""

import re
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from emulator.fixtures import intrinsic, read, written
from emulator.test_reports import misuses
from kernelmark.bench.emulator.worker import Array, Buffer, EmulatedTensorMap, Im2col, Launch, WorkerError

RNG = np.random.default_rng(5)
Pair, Triple = tuple[int, int], tuple[int, int, int]


def tensor(name: str, array: Array, box: Pair, swizzle: int = 0, tf32: bool = False) -> EmulatedTensorMap:
    """Return a tensor map over an array of three dimensions; box: its elements along x and y."""
    deep, down, _ = array.strides
    return EmulatedTensorMap(name, array.shape[::-1], (down, deep), box, array.itemsize, swizzle, tf32)


def swizzled(rows: Array, span: int) -> Array:
    """Return rows of bytes, swizzled: a 16-byte chunk's number is XORed with the number of its 128-byte line."""
    flat = rows.reshape(-1, 16)
    chunk = np.arange(len(flat))
    where = chunk ^ (chunk >> 3 & (span // 16 - 1)) if span else chunk
    out = np.empty_like(flat)
    out[where] = flat
    return out.ravel()


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.float64])
def test_tma_load_swizzles_and_fills_with_zeros_outside(span: int, dtype: Any) -> None:
    x = RNG.integers(1, 1000, (2, 21, 40)).astype(dtype)
    width, height = (span or 48) // x.itemsize, 24
    padded = np.zeros((4, 200, 400), dtype)
    padded[1:3, 50:71, 100:140] = x
    for cx, cy, cz in ((0, 0, 0), (4, 3, 1), (-2, -1, 0), (30, 18, 1), (0, 0, 2), (100, 0, 0)):
        want = padded[cz + 1, 50 + cy : 50 + cy + height, 100 + cx : 100 + cx + width]
        size = want.nbytes
        launch = Launch("load_box", 1, 32, (tensor("x", x, (width, height), span), "out", cx, cy, cz, size))
        out = intrinsic("hopper.cu", launch, {"x": read(x), "out": written(size // 4, np.uint32)})["out"]
        assert np.array_equal(out.view(np.uint8), swizzled(np.ascontiguousarray(want).view(np.uint8), span)), (cx, cy)


def test_tma_rounds_to_tf32_on_the_way() -> None:
    x = RNG.uniform(-1, 1, (1, 8, 32)).astype(np.float32)
    launch = Launch("load_box", 1, 32, (tensor("x", x, (32, 8), tf32=True), "out", 0, 0, 0, 1024))
    out = intrinsic("hopper.cu", launch, {"x": read(x), "out": written(256, np.uint32)})["out"]
    assert np.array_equal(out, (x.view(np.uint32).ravel() + np.uint32(0x1000)) & np.uint32(0xFFFFE000))


@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_tma_store_leaves_alone_what_lies_outside(span: int) -> None:
    x, width, height = np.full((2, 21, 40), 7000, np.uint32), (span or 48) // 4, 24
    words = swizzled(np.arange(width * height, dtype=np.uint32).view(np.uint8), span).view(np.uint32)
    order = np.empty_like(words)
    order[words] = np.arange(words.size)  # the place of each word of the box
    for cx, cy, cz in ((0, 0, 0), (4, 3, 1), (-3, -1, 0), (30, 18, 1)):
        want = x.copy()
        for i, j in np.ndindex(height, width):
            if 0 <= cy + i < 21 and 0 <= cx + j < 40:
                want[cz, cy + i, cx + j] = order[i * width + j]
        launch = Launch("store_box", 1, 32, (tensor("x", x, (width, height), span), cx, cy, cz, width * height * 4))
        out = intrinsic("hopper.cu", launch, {"x": Buffer("inout", x.ravel())})["x"]
        assert np.array_equal(out.reshape(x.shape), want), (cx, cy, cz)


def test_tma_store_writes_whole_16_bytes_beyond_the_edge() -> None:
    """H100 and H200 write a row that ends within 16 bytes up to the end of these 16 bytes."""
    x = np.full((1, 4, 40), 7000, np.uint32)
    part = tensor("x", x[:, :, :33], (12, 4))
    launch = Launch("store_box", 1, 32, (part, 24, 0, 0, x[:, :, :12].nbytes))
    out = intrinsic("hopper.cu", launch, {"x": Buffer("inout", x.ravel())})
    want = x.copy()
    want[0, :, 24:36] = np.arange(48).reshape(4, 12)
    assert np.array_equal(out["x"].reshape(x.shape), want)


def test_wait_for_stores_covers_all_groups_but_the_youngest() -> None:
    x = np.zeros((1, 4, 32), np.uint32)
    launch = Launch("store_rows", 1, 32, (tensor("x", x, (32, 1)),))
    out = intrinsic("hopper.cu", launch, {"x": written(128, np.uint32)})
    assert np.array_equal(out["x"].reshape(4, 32), 100 * np.arange(4)[:, None] + np.arange(32))


def test_multicast_reaches_every_block_of_the_cluster() -> None:
    x = RNG.uniform(-1, 1, (1, 3, 32)).astype(np.float32)
    launch = Launch("multicast", 12, 64, (tensor("x", x, (32, 1)), "out", 32), cluster=4)
    out = intrinsic("hopper.cu", launch, {"x": read(x), "out": written(12 * 32)})["out"].reshape(3, 4, 32)
    assert np.array_equal(out, x[0][:, None] + np.arange(4, dtype=np.float32)[:, None])


#: The NumPy type of each C++ type; the value of each swizzle span in a descriptor.
TYPES = {"F16": np.float16, "Bf16": ml_dtypes.bfloat16, "Tf32": np.float32}
FP8 = {"E4m3": ml_dtypes.float8_e4m3fn, "E5m2": ml_dtypes.float8_e5m2}
INTEGERS = {"S8": np.int8}
SPANS = {0: 0, 128: 1, 64: 2, 32: 3}


def _laid_out(x: Array, span: int) -> Array:
    """Return a matrix with rows of 128 bytes, laid out in swizzled columns of `span` bytes (16 if span is 0)."""
    width = (span or 16) // x.itemsize
    columns = x.reshape(len(x), -1, width).transpose(1, 0, 2)
    return np.concatenate([swizzled(np.ascontiguousarray(c).view(np.uint8).reshape(-1), span) for c in columns])


def _descriptor(start: int, leading: int, stride: int, span: int) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | SPANS[span] << 62


def _k_major(rows: int, span: int, step: int) -> int:
    """Return the descriptor of a step of 32 bytes along k, in columns of `span` bytes."""
    width = span or 16
    start = step * 32 // width * (rows * width) + step * 32 % width
    return _descriptor(start, rows * 16 if span == 0 else 0, 8 * width, span)


def _mn_major(depth: int, span: int, step: int) -> int:
    """Return the descriptor of a step of 16 rows along k; columns of `span` bytes along m or n have `depth` rows."""
    width = span or 16
    column, eight_k = depth * width, 8 * width
    leading, stride = (eight_k, column) if span == 0 else (column, eight_k)
    return _descriptor(step * 16 * width, leading, stride, span)


def _wgmma(instance: str, laid: list[Array], descriptors: Any, c: Array, zero: int = 0) -> Array:
    """Return A B + C for laid-out operands; descriptors: a pair for each step; zero: leave C out."""
    a, b = (x.view(np.uint32) for x in laid)
    pairs = np.array(descriptors, np.uint64)
    args = ("a", "b", "c", "d", a.size, b.size, len(pairs), zero)
    launch = Launch(f"product<{instance}>", 1, 128, args, shared_bytes=a.nbytes + b.nbytes)
    buffers = {"a": read(a), "b": read(b), "c": Buffer("inout", c.ravel()), "d": read(pairs)}
    return intrinsic("hopper.cu", launch, buffers)["c"].reshape(c.shape)


MAJORS = [*product(("Tf32", *FP8, *INTEGERS), ["kk"]), *product(("F16", "Bf16"), ("kk", "km", "mk", "mm"))]


@pytest.mark.parametrize(("kind", "majors"), MAJORS)
@pytest.mark.parametrize("n", [64, 128, 256])
def test_wgmma_takes_both_majors_and_all_swizzles(n: int, kind: str, majors: str) -> None:
    dtype = (TYPES | FP8 | INTEGERS)[kind]
    depth = 128 // np.dtype(dtype).itemsize
    steps_of = 1 if kind in INTEGERS else 4  # operands are multiples of 1 or 1/4
    a, b = ((RNG.integers(-8, 9, shape) / steps_of).astype(dtype) for shape in ((64, depth), (n, depth)))
    c = RNG.integers(-8, 9, (64, n)).astype(np.int32 if kind in INTEGERS else np.float32)
    for span, zero in (*((span, 0) for span in SPANS), (128, 1)):
        laid, words = [], []
        for x, major in zip((a, b), majors, strict=True):
            laid.append(_laid_out(x if major == "k" else np.ascontiguousarray(x.T), span))
            words.append([_k_major(len(x), span, s) if major == "k" else _mn_major(depth, span, s) for s in range(4)])
        instance = f"{kind}, {int(majors[0] == 'm')}, {int(majors[1] == 'm')}, {n // 2}"
        out = _wgmma(instance, laid, list(zip(*words, strict=True)), c, zero)
        want = a.astype(np.float64) @ b.astype(np.float64).T + (0 if zero else c)
        assert np.array_equal(out, want), (span, zero)


def test_wgmma_adds_integers_over_their_whole_range_and_wraps_around() -> None:
    a, b = (RNG.integers(-128, 128, (64, 128)).astype(np.int8) for _ in "ab")
    a[:2], b[:2], b[2] = -128, -128, 127
    c = np.full((64, 64), 2**31 - 1, np.int32)
    descriptors = [[_k_major(64, 128, step)] * 2 for step in range(4)]
    sums = _wgmma("S8, 0, 0, 32", [_laid_out(x, 128) for x in (a, b)], descriptors, c)
    exact = a.astype(np.int64) @ b.astype(np.int64).T + c
    assert exact.max() > 2**31
    assert np.array_equal(sums, exact.astype(np.int32))


@pytest.mark.parametrize("n", [64, 128, 256])
def test_wgmma_takes_a_from_registers(n: int) -> None:
    a, b = ((RNG.integers(-8, 9, (rows, 32)) / 4).astype(np.float32) for rows in (64, n))
    laid = _laid_out(b, 128).view(np.uint32)
    words = np.array([_k_major(n, 128, step) for step in range(4)], np.uint64)
    args = ("a", "b", "c", "d", laid.size, 4)
    launch = Launch(f"product_of_registers<{n // 2}>", 1, 128, args, shared_bytes=laid.nbytes)
    buffers = {"a": read(a.view(np.uint32)), "b": read(laid), "c": written(64 * n), "d": read(words)}
    assert np.array_equal(intrinsic("hopper.cu", launch, buffers)["c"].reshape(64, n), a @ b.T)


def _one_sum(kind: str, a: dict[int, float], b: dict[int, float], c: float) -> float:
    """Return the first sum of one FP8 wgmma on rows with these elements; all other elements are 0."""
    laid = []
    for row in (a, b):
        x = np.zeros((64, 128), FP8[kind])
        x[0, list(row)] = list(row.values())
        laid.append(_laid_out(x, 128))
    sums = np.full((64, 64), c, np.float32)
    return float(_wgmma(f"{kind}, 0, 0, 32", laid, [[_k_major(64, 128, 0)] * 2], sums)[0, 0])


@pytest.mark.parametrize("kind", FP8)
@pytest.mark.parametrize(
    ("a", "b", "c", "want"),
    [
        ({}, {}, 1 + 2.0**-13, 1 + 2.0**-13),  # 14 bits of C are kept,
        ({}, {}, 1 + 2.0**-13 + 2.0**-14, 1 + 2.0**-13),  # but not the 15th
        ({0: 1.0, 31: 2.0**-6}, {0: 1.0, 31: 2.0**-7}, 0.0, 1 + 2.0**-13),
        ({0: 1.0, 31: 2.0**-7}, {0: 1.0, 31: 2.0**-7}, 0.0, 1.0),  # 2^-14 of the largest product is cut off
        ({0: 1.0, 31: -(2.0**-7)}, {0: 1.0, 31: 2.0**-7}, 0.0, 1 - 2.0**-13),  # an arithmetic shift
        ({0: 1.0, 1: 1.0}, {0: 2.0**-7, 1: 2.0**-7}, 1.0, 1 + 2.0**-6),
        ({0: 2.0**-7, 1: 2.0**-7}, {0: 2.0**-7, 1: 2.0**-7}, 1.0, 1.0),  # cut off before the addition
        ({0: -1.0}, {0: 1.0}, 1.0, 0.0),
        ({0: float("nan")}, {0: 1.0}, 1.0, float("nan")),
    ],
)
def test_wgmma_adds_products_of_fp8_with_14_bits(kind: str, a: Any, b: Any, c: float, want: float) -> None:
    """Sources: DeepSeek-AI, who added products of different sizes; SageAttention2's authors, who used A = B = 0."""
    assert np.array_equal(_one_sum(kind, a, b, c), want, equal_nan=True)


def test_wgmma_tf32_drops_13_bits() -> None:
    a, b = (RNG.uniform(-1, 1, shape).astype(np.float32) for shape in ((64, 32), (64, 32)))
    laid, zeros = [_laid_out(x, 128) for x in (a, b)], np.zeros((64, 64), np.float32)
    out = _wgmma("Tf32, 0, 0, 32", laid, [[_k_major(64, 128, 0)] * 2], zeros, zero=1)
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)[:, :8].astype(np.float64) for x in (a, b)]
    assert np.array_equal(out, (cut[0] @ cut[1].T).astype(np.float32))


#: Lower corner, upper corner and stride, each (columns, rows), then the first pixel (column, row, image).
WALKS = {
    "whole": ((0, 0), (0, 0), (1, 1), (0, 0, 0)),
    "padded": ((-1, -2), (1, 0), (1, 1), (-1, -2, 0)),
    "strided": ((-1, -1), (0, -1), (2, 3), (3, 2, 0)),
    "inner": ((2, 1), (-1, -2), (1, 1), (3, 2, 1)),
    "last": ((0, 0), (0, 0), (1, 1), (4, 5, 1)),
}


def images(x: Array, box: Pair, lower: Pair, upper: Pair, stride: Pair, swizzle: int = 0) -> EmulatedTensorMap:
    """Return a tensor map over images; box: (channels, pixels); the other pairs: (columns, rows)."""
    pitches = tuple(x.strides[axis] for axis in (2, 1, 0))
    return EmulatedTensorMap("x", x.shape[::-1], pitches, box, x.itemsize, swizzle, im2col=Im2col(lower, upper, stride))


def columns(x: Array, box: Pair, lower: Pair, upper: Pair, stride: Pair, first: Triple, tap: Pair) -> Array:
    """Return the pixels that a copy takes: from the first pixel on in visiting order, each shifted by the tap."""
    n, h, w, c = x.shape
    across = range(lower[0], w + upper[0], stride[0])
    visited = list(product(range(n + 40), range(lower[1], h + upper[1], stride[1]), across))
    start = visited.index((first[2], first[1], first[0]))
    out = np.zeros((box[1], box[0]), x.dtype)
    for line, (image, row, column) in zip(out, visited[start : start + box[1]], strict=True):
        place = (image, row + tap[1], column + tap[0])
        if all(0 <= at < size for at, size in zip(place, (n, h, w), strict=True)):
            line[: min(c, box[0])] = x[place][: box[0]]
    return out


def loaded(tensor: EmulatedTensorMap, x: Array, first: Triple, tap: Pair = (0, 0), channel: int = 0) -> Array:
    size = tensor.box[0] * tensor.box[1] * tensor.itemsize
    launch = Launch("load_pixels", 1, 32, (tensor, "out", channel, *first, *tap, size))
    return intrinsic("im2col.cu", launch, {"x": read(x), "out": written(size // 4, np.uint32)})["out"].view(np.uint8)


@pytest.mark.parametrize("tap", [(0, 0), (2, 1), (0, 4)], ids=str)
@pytest.mark.parametrize("span", [0, 128])
@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_pixels_are_taken_as_the_first_tap_visits_them(walk: Any, span: int, tap: Pair) -> None:
    x = RNG.integers(1, 1000, (2, 6, 5, 24)).astype(np.uint16)
    lower, upper, stride, first = walk
    box = (64, 37) if span else (16, 50)  # more or fewer channels than x
    want = columns(x, box, lower, upper, stride, first, tap)
    copied = loaded(images(x, box, lower, upper, stride, span), x, first, tap)
    assert np.array_equal(copied, swizzled(want.view(np.uint8), span))


def test_a_copy_begins_at_its_channel() -> None:
    x = RNG.integers(1, 1000, (1, 2, 4, 24)).astype(np.uint16)
    copied = loaded(images(x, (16, 8), (0, 0), (0, 0), (1, 1)), x, (0, 0, 0), channel=16).view(np.uint16).reshape(8, 16)
    assert np.array_equal(copied[:, :8], x.reshape(8, 24)[:, 16:])
    assert not copied[:, 8:].any()


@pytest.mark.parametrize(
    ("corner", "first", "tap", "want"),
    [
        ((0, 0), (0, 0, 0), (0, 0), range(1, 17)),
        ((-1, -1), (-1, -1, 0), (0, 0), (0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11)),
        ((-1, -1), (-1, -1, 0), (1, 1), range(1, 17)),
        ((0, 0), (3, 1, 0), (0, 0), range(8, 24)),
        ((-1, -1), (2, 1, 0), (0, 0), (7, 0, 9, 10, 11, 0, 0, 0, 0, 0, 17, 18, 19, 0, 21, 22)),
    ],
)
def test_published_output_of_a_device(corner: Pair, first: Any, tap: Pair, want: Any) -> None:
    """The cases are examples 1 to 5 of Triton's tutorial `conv-im2col`: two images of 4 x 4 pixels, numbered from 1."""
    x = np.repeat(np.arange(1, 33, dtype=np.float32), 32).reshape(2, 4, 4, 32)
    copied = loaded(images(x, (32, 16), corner, corner, (1, 1)), x, first, tap)
    assert copied.view(np.float32).reshape(16, 32)[:, 0].tolist() == list(want)


EMPTY = np.zeros((1, 6, 5, 8), np.float32)


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (images(EMPTY, (8, 1025), (0, 0), (0, 0), (1, 1)), "a box with a side of 1025; expected 1 to 1024"),
        (images(EMPTY, (257, 8), (0, 0), (0, 0), (1, 1)), "a box with a side of 257; expected 1 to 256"),
        (images(EMPTY, (8, 8), (-129, 0), (0, 0), (1, 1)), "a corner at -129; expected -128 to 127"),
        (images(EMPTY, (8, 8), (0, 0), (0, 128), (1, 1)), "a corner at 128; expected -128 to 127"),
        (images(EMPTY, (8, 8), (0, 0), (0, 0), (1, 9)), "a stride of 9; expected 1 to 8"),
        (images(EMPTY, (8, 8), (0, 2), (0, -4), (1, 1)), "corners with no pixel between them"),
        (images(EMPTY, (64, 8), (0, 0), (0, 0), (1, 1), 128), "a box with rows of 256 bytes and a swizzle of 128"),
        (images(np.zeros((1, 6, 5, 7), np.float32), (8, 8), (0, 0), (0, 0), (1, 1)), "rows 28 bytes apart"),
    ],
)
def test_map_of_images_that_the_driver_would_not_encode_is_refused(tensor: EmulatedTensorMap, said: str) -> None:
    with pytest.raises(WorkerError, match=f"load_pixels: no tensor map has {re.escape(said)}"):
        loaded(tensor, EMPTY, (0, 0, 0))


BOXES = EmulatedTensorMap("x", (8, 5, 6), (32, 160), (8, 8), 4)
PIXELS = images(EMPTY, (8, 8), (-1, -1), (1, 1), (2, 1))


_COPY = "ptx::tma_load_im2col(to, &map, 0, -1, 0, 0, 0, 0, barrier);"
#: A tensor map, a call that misuses it, and the kind and message of the report.
MISUSED = (
    (PIXELS, "ptx::tma_load(to, &map, 0, 0, 0, barrier);", "tma", "a tiled copy with an im2col tensor map"),
    (BOXES, "ptx::tma_load_im2col(to, &map, 0, 0, 0, 0, 0, 0, barrier);", "tma", "an im2col copy with a tiled"),
    (PIXELS, "ptx::tma_load_im2col(to, &map, 0, 0, 0, 0, 0, 0, barrier);", "tma", "does not visit"),
    (PIXELS, "ptx::tma_load_im2col(to, &map, 0, -1, 7, 0, 0, 0, barrier);", "tma", "does not visit"),
    (PIXELS, "ptx::tma_load_im2col(to, &map, 0, -1, -2, 0, 0, 0, barrier);", "tma", "does not visit"),
    (PIXELS, "ptx::tma_load_im2col(to, &map, 0, -1, 0, 0, 256, 0, barrier);", "tma", "more than 255 pixels"),
    (PIXELS, "ptx::tma_load_im2col(to + 64, &map, 0, -1, 0, 0, 0, 0, barrier);", "misaligned", "multiple of 128"),
    (PIXELS, _COPY, "copy-not-waited-for", "the block ended"),
    (PIXELS, f"smem[9] = 1; {_COPY}", "async-proxy", "fence"),
)


@pytest.mark.parametrize("number", range(len(MISUSED)))
def test_misuse_of_a_copy_of_pixels_is_reported(number: int) -> None:
    tensor, _, kind, said = MISUSED[number]
    bodies = [f"if (threadIdx.x == 0) {{ {body} }}" for _, body, *_ in MISUSED]
    reports = misuses(bodies, number, tensor, EMPTY)
    assert (kind, True) in [(report.kind, said in report.message) for report in reports], reports
