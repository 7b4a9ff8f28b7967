"""Copies of pixels for a filter's taps (im2col) against NumPy and what devices printed; what no driver would encode."""

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from emulator.fixtures import intrinsic, outcomes_of, read, written
from emulator.test_hopper import swizzled
from emulator.test_hopper_reports import HEAD
from kernelmark.bench.emulator.worker import EmulatedTensorMap, Im2col, Launch, WorkerError

RNG = np.random.default_rng(8)
Pair = tuple[int, int]
Array = np.ndarray[Any, Any]
#: Lower and upper corner and stride, by columns and rows, then the first pixel's column, row and image.
WHOLE = ((0, 0), (0, 0), (1, 1), (0, 0, 0))
PADDED = ((-1, -2), (1, 0), (1, 1), (-1, -2, 0))
STRIDED = ((-1, -1), (0, -1), (2, 3), (3, 2, 0))
INNER = ((2, 1), (-1, -2), (1, 1), (3, 2, 1))
LAST = ((0, 0), (0, 0), (1, 1), (4, 5, 1))


def images(x: Array, box: Pair, lower: Pair, upper: Pair, stride: Pair, swizzle: int = 0) -> EmulatedTensorMap:
    """A map over images; box in channels and pixels, all else by columns and rows."""
    pitches = tuple(x.strides[axis] for axis in (2, 1, 0))
    return EmulatedTensorMap("x", x.shape[::-1], pitches, box, x.itemsize, swizzle, im2col=Im2col(lower, upper, stride))


def columns(
    x: Array, box: Pair, lower: Pair, upper: Pair, stride: Pair, first: tuple[int, int, int], tap: Pair
) -> Array:
    """What a copy takes: the pixels after the first one among those that are visited, at a tap's distance."""
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


def loaded(
    tensor: EmulatedTensorMap, x: Array, first: tuple[int, int, int], tap: Pair = (0, 0), channel: int = 0
) -> Array:
    """The bytes of a copy as they lie in shared memory."""
    size = tensor.box[0] * tensor.box[1] * tensor.itemsize
    launch = Launch("load_pixels", 1, 32, (tensor, "out", channel, *first, *tap, size))
    return intrinsic("im2col.cu", launch, {"x": read(x), "out": written(size // 4, np.uint32)})["out"].view(np.uint8)


@pytest.mark.parametrize("tap", [(0, 0), (2, 1), (0, 4)], ids=str)
@pytest.mark.parametrize("span", [0, 128])
@pytest.mark.parametrize(
    "walk", [WHOLE, PADDED, STRIDED, INNER, LAST], ids=["whole", "padded", "strided", "inner", "last"]
)
def test_pixels_are_taken_as_the_first_tap_visits_them(walk: Any, span: int, tap: Pair) -> None:
    x = RNG.integers(1, 1000, (2, 6, 5, 24)).astype(np.uint16)
    lower, upper, stride, first = walk
    box = (64, 37) if span else (16, 50)  # more channels than there are, or fewer
    want = columns(x, box, lower, upper, stride, first, tap)
    found = loaded(images(x, box, lower, upper, stride, span), x, first, tap)
    assert np.array_equal(found, swizzled(want.view(np.uint8), span))


def test_a_copy_begins_at_its_channel() -> None:
    x = RNG.integers(1, 1000, (1, 2, 4, 24)).astype(np.uint16)
    found = loaded(images(x, (16, 8), (0, 0), (0, 0), (1, 1)), x, (0, 0, 0), channel=16).view(np.uint16).reshape(8, 16)
    assert np.array_equal(found[:, :8], x.reshape(8, 24)[:, 16:])
    assert not found[:, 8:].any()


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
    """Two images of 4 x 4 pixels, numbered from 1: examples 1 to 5 of Triton's tutorial `conv-im2col`."""
    x = np.repeat(np.arange(1, 33, dtype=np.float32), 32).reshape(2, 4, 4, 32)
    found = loaded(images(x, (32, 16), corner, corner, (1, 1)), x, first, tap)
    assert found.view(np.float32).reshape(16, 32)[:, 0].tolist() == list(want)


X = np.zeros((1, 6, 5, 8), np.float32)


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (images(X, (8, 1025), (0, 0), (0, 0), (1, 1)), "a box with a side of 1025; expected 1 to 1024"),
        (images(X, (257, 8), (0, 0), (0, 0), (1, 1)), "a box with a side of 257; expected 1 to 256"),
        (images(X, (8, 8), (-129, 0), (0, 0), (1, 1)), "a corner at -129; expected -128 to 127"),
        (images(X, (8, 8), (0, 0), (0, 128), (1, 1)), "a corner at 128; expected -128 to 127"),
        (images(X, (8, 8), (0, 0), (0, 0), (1, 9)), "a stride of 9; expected 1 to 8"),
        (images(X, (8, 8), (0, 2), (0, -4), (1, 1)), "corners with no pixel between them"),
        (images(X, (64, 8), (0, 0), (0, 0), (1, 1), 128), "a box with rows of 256 bytes, swizzled over 128"),
        (images(np.zeros((1, 6, 5, 7), np.float32), (8, 8), (0, 0), (0, 0), (1, 1)), "rows 28 bytes apart"),
    ],
)
def test_map_of_images_that_the_driver_would_not_encode_is_refused(tensor: EmulatedTensorMap, said: str) -> None:
    with pytest.raises(WorkerError, match=f"load_pixels: no tensor map has {re.escape(said)}"):
        loaded(tensor, X, (0, 0, 0))


BOXES = EmulatedTensorMap("x", (8, 5, 6), (32, 160), (8, 8), 4)
PIXELS = images(X, (8, 8), (-1, -1), (1, 1), (2, 1))


@pytest.mark.parametrize(
    ("tensor", "body", "kind", "said"),
    [
        (PIXELS, "ptx::tma_load(to, &map, 0, 0, 0, barrier);", "tma", "a copy of a box by a map of images"),
        (BOXES, "ptx::tma_load_im2col(to, &map, 0, 0, 0, 0, 0, 0, barrier);", "tma", "pixels by a map of boxes"),
        (PIXELS, "ptx::tma_load_im2col(to, &map, 0, 0, 0, 0, 0, 0, barrier);", "tma", "does not visit"),
        (PIXELS, "ptx::tma_load_im2col(to, &map, 0, -1, 7, 0, 0, 0, barrier);", "tma", "does not visit"),
        (PIXELS, "ptx::tma_load_im2col(to, &map, 0, -1, -2, 0, 0, 0, barrier);", "tma", "does not visit"),
        (PIXELS, "ptx::tma_load_im2col(to, &map, 0, -1, 0, 0, 256, 0, barrier);", "tma", "more than 255 pixels"),
        (PIXELS, "ptx::tma_load_im2col(to + 64, &map, 0, -1, 0, 0, 0, 0, barrier);", "misaligned", "multiple of 128"),
        (
            PIXELS,
            "ptx::tma_load_im2col(to, &map, 0, -1, 0, 0, 0, 0, barrier);",
            "copy-not-waited-for",
            "the block ended",
        ),
        (PIXELS, "smem[9] = 1; ptx::tma_load_im2col(to, &map, 0, -1, 0, 0, 0, 0, barrier);", "async-proxy", "fence"),
    ],
)
def test_misuse_of_a_copy_of_pixels_is_reported(tensor: EmulatedTensorMap, body: str, kind: str, said: str) -> None:
    text = f"{HEAD}  if (threadIdx.x == 0) {{ {body} }}\n  y[threadIdx.x] = 0.0f;\n}}\n"
    outcome = outcomes_of(
        text, Launch("f", 1, 32, (tensor, "y")), {"x": read(X), "y": written(32)}, orders=("forward",)
    )
    reports = [report for report in outcome[0].reports if report.kind != "not-written"]
    assert (kind, True) in [(report.kind, said in report.message) for report in reports], reports
