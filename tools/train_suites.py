"""Writes the suites that selectors are trained on: shapes drawn around the layers of networks, and none of these.

`python tools/suites.py` writes them with the others; tests/plan/test_train_suites.py compares, and counts the seconds.
"""

import math
import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

from kernelmark.kernels.conv.fft.cpu import STRAIGHT
from kernelmark.kernels.conv.implicit.cuda import BROAD, LEAST, LOW, NARROW, SQUARE
from networks import Conv, Dense, Layer, alexnet, googlenet, resnet50, vgg16
from suite_text import NO_FFT, NO_FULL_FFT, header, table

#: The networks whose layers are the test, and are never drawn.
HELD_OUT: tuple[Callable[[], Iterator[Layer]], ...] = (resnet50, vgg16, googlenet, alexnet)
#: Problems of a suite and seconds a case; a convolution's times differ more between processes than within one.
CONVOLUTIONS, CONVOLUTION_S, PRODUCTS, PRODUCT_S = 570, 0.1, 390, 0.3
#: What a problem may compute at most.
MOST_FLOP, SEED = 4e9, 22
#: What a case takes besides its samples: calls that verify it and warm it up, at a rate that slow kernels reach too.
CALLS, FLOP_PER_S = 20, 10e9
#: Fewer channels are those of an image.
FEW_CHANNELS = 8
AXES = ("c", "h", "w", "k", "r", "s", "pad", "stride")
Sizes = tuple[int | str, ...]


def held_out() -> set[Layer]:
    """Return the layers that are the test."""
    return {layer for network in HELD_OUT for layer in network()}


def near(rng: random.Random, size: int, least: int = 1) -> int:
    """Return a size up to an octave below or above, uniform in its logarithm."""
    return max(least, round(size * 2 ** rng.uniform(-1, 1)))


def channels_near(rng: random.Random, size: int) -> int:
    """Return channels near those of a layer, a multiple of 8 as there; those of an image, 3, may be any number."""
    drawn = near(rng, size)
    return drawn if size < FEW_CHANNELS else max(8, round(drawn / 8) * 8)


def convolutions() -> list[Conv]:
    """Return convolutions near those of the networks; the taps and the stride of a layer stay together.

    A kind of layer (its taps, its stride, the octave of its side, whether it reads an image's channels) is drawn as
    the root of its layers: half of all are 1x1, three in 84 are 1x1 with stride 2, and two are 3x3 on large images, of
    which too few would be drawn to learn from. Layers are drawn at even distances, kind by kind, so that every third
    problem, which is a direction's, has all of them. What computes too much is drawn again near the same layer, and of
    three shapes the cheapest is taken, so that large layers are many and the suite is not long.
    """
    rng, layers = random.Random(SEED), sorted(layer for layer in held_out() if isinstance(layer, Conv))
    layers.sort(key=_kind)
    kinds = Counter(map(_kind, layers))
    edges = list(accumulate(1 / math.sqrt(kinds[_kind(layer)]) for layer in layers))
    found: dict[Conv, None] = {}
    for i in range(CONVOLUTIONS):
        like = layers[bisect(edges, (i + 0.5) / CONVOLUTIONS * edges[-1])]
        shapes = (shape for shape in _around(rng, like) if shape not in layers and shape not in found)
        found[min(islice(shapes, 3), key=_flop)] = None
    return list(found)


def _around(rng: random.Random, layer: Conv) -> Iterator[Conv]:
    """Yield shapes near a layer that compute no more than a problem may."""
    while True:
        side = near(rng, layer.side, layer.r)
        shape = layer._replace(c=channels_near(rng, layer.c), side=side, k=channels_near(rng, layer.k))
        if _flop(shape) <= MOST_FLOP:
            yield shape


def _kind(layer: Conv) -> tuple[int, int, int, bool]:
    return layer.r, layer.stride, round(math.log2(layer.side)), layer.c < FEW_CHANNELS


def _flop(layer: Conv) -> int:
    return 2 * layer.c * layer.k * (layer.side // layer.stride) ** 2 * layer.r * layer.s


def products() -> list[tuple[int, int, int]]:
    """Return products from vectors to 8192, uniform in the logarithms of m, n and k; no fully connected layer."""
    rng, layers = random.Random(SEED), {layer for layer in held_out() if isinstance(layer, Dense)}
    sizes = {tuple(sorted((1, layer.inputs, layer.outputs))) for layer in layers}
    found: dict[tuple[int, int, int], None] = {}
    while len(found) < PRODUCTS:
        m, n, k = (round(2 ** rng.uniform(low, 13)) for low in (0, 4, 4))
        if tuple(sorted((m, n, k))) not in sizes and 1e5 <= 2 * m * n * k <= MOST_FLOP:
            found[m, n, k] = None
    return list(found)


_NEAR = "drawn with a seed: channels and filters (multiples of 8) and side, each up to an octave around a layer's"


def _suite(title: str, source: str, notes: str, parts: list[str], problems: int, seconds: float) -> str:
    how = (
        f"Sized for two processes within an hour on two cores: {problems} problems of at most {MOST_FLOP / 1e9:g} "
        f"GFLOP, of which a case takes {seconds} s of samples and {CALLS} calls at {FLOP_PER_S / 1e9:g} GFLOP/s "
        "besides; the test of this file adds them up. No layer of ResNet-50, VGG-16, GoogLeNet or AlexNet is part of "
        "it: those are the test of a selector."
    )
    head = header(title, source, "Made by tools/suites.py from tools/train_suites.py; edit those.", f"{notes} {how}")
    return "\n".join([head, "", f"max_time = {seconds}", *parts, ""])


def train_conv() -> str:
    """The text of train-conv.toml."""
    parts = []
    for i, direction in enumerate(("fprop", "dgrad", "wgrad")):
        for kernels, is_pointwise in ((NO_FFT, True), (NO_FULL_FFT, False)):
            chosen = (conv for conv in convolutions()[i::3] if (conv.r == 1) == is_pointwise)
            cases: Counter[Sizes] = Counter(conv.sizes for conv in chosen)
            fixed = {"dtype": "f32", "n": 1, "direction": direction, "kernels": kernels}
            parts.append(table("conv", cases, AXES, **fixed))
    return _suite(
        f"Training, convolution: {CONVOLUTIONS} problems near the layers of four networks, for kernelmark select",
        _NEAR,
        "A third each forward and both gradients, one image. FFTs of whole images, and any FFT of 1x1 filters, are "
        "left out: on layers of networks they took at least five times as long as the fastest kernel, up to a second "
        "a call (reports/).",
        parts,
        CONVOLUTIONS,
        CONVOLUTION_S,
    )


def train_gemm() -> str:
    """The text of train-gemm.toml."""
    parts = []
    for layout, chosen in (("NT", products()[::2]), ("NN", products()[1::4]), ("TN", products()[3::4])):
        parts.append(table("gemm", Counter(chosen), None, dtype="f32", layout=layout, kernels=["!*_colmajor"]))
    return _suite(
        f"Training, GEMM: {PRODUCTS} products from vectors to 8192, for kernelmark select",
        "drawn with a seed: m, n and k uniform in their logarithms",
        "Half of them are NT, where the kernels that transpose B first contend.",
        parts,
        PRODUCTS,
        PRODUCT_S,
    )


#: Problems of a suite of FFT tiles in each direction, the sides of FFTW's tiles that are compared, and seconds a case.
TILED, SIDES, TILED_TIME_S = 24, (8, 12, 16, 20, 32, 48, 64, 80, 96, 128), 0.05
#: Products of direct convolution without the taps, by the logarithm of those: what keeps the suite to ten minutes.
MOST_WORK = 1.5e8


def tiled() -> list[Conv]:
    """Return convolutions with filters of 3 to 31 taps, all sizes uniform in their logarithms."""
    rng = random.Random(SEED)
    found: dict[Conv, None] = {}
    while len(found) < 3 * TILED:
        r = rng.choice((3, 3, 5, 5, 7, 9, 11, 15, 21, 31))
        c, k, side = (round(2 ** rng.uniform(low, high)) for low, high in ((3, 9), (3, 9), (math.log2(max(r, 7)), 8)))
        if c * k * side**2 * math.log2(r) <= MOST_WORK:
            found[Conv(c, side, k, r, r, r // 2)] = None
    return list(found)


def _tiles(title: str, source: str, convs: list[Conv], kernel: str, tiles: Iterator[str], seconds: float) -> str:
    """The text of a suite in which the tiles of a kernel contend with what it chooses by itself."""
    kernels, parts = [kernel, *(f"{kernel}@{tile}" for tile in tiles)], []
    for i, direction in enumerate(("fprop", "dgrad", "wgrad")):
        cases: Counter[Sizes] = Counter(conv.sizes for conv in convs[i::3])
        parts.append(table("conv", cases, AXES, dtype="f32", n=1, direction=direction, kernels=kernels))
    origin = "Made by tools/suites.py from tools/train_suites.py; edit those."
    notes = "The first kernel chooses its tile by itself; `kernelmark select --train RUN` prints what that costs."
    return "\n".join([header(title, source, origin, notes), "", f"max_time = {seconds}", *parts, ""])


def _fft_tiles(kernel: str, sides: Iterable[int]) -> str:
    title = f"Training, tiles of {kernel}: {3 * TILED} problems by the sides of their tiles"
    source = "drawn with a seed: channels, filters, side and taps, uniform in their logarithms"
    tiles = (f"HEIGHT={side},WIDTH={side}" for side in sides)
    return _tiles(title, source, tiled(), kernel, tiles, TILED_TIME_S)


def train_fft_tiles() -> str:
    """The text of train-fft-tiles.toml."""
    return _fft_tiles("conv/pyfftw.tiled", SIDES)


def train_numba_fft_tiles() -> str:
    """The text of train-numba-fft-tiles.toml."""
    return _fft_tiles("conv/numba.fft_tiled", STRAIGHT)


def train_implicit_tiles() -> str:
    """The text of train-implicit-tiles.toml."""
    title = f"Training, tiles of implicit GEMM on a GPU: the {CONVOLUTIONS} problems of train-conv"
    tiles = (f"BM={tile['BM']},BN={tile['BN']}" for tile in (LEAST, LOW, NARROW, SQUARE, BROAD))
    return _tiles(title, _NEAR, convolutions(), "conv/cuda.implicit", tiles, TILED_TIME_S)


SUITES: dict[str, Callable[[], str]] = {
    "train-conv.toml": train_conv,
    "train-gemm.toml": train_gemm,
    "train-fft-tiles.toml": train_fft_tiles,
    "train-numba-fft-tiles.toml": train_numba_fft_tiles,
    "train-implicit-tiles.toml": train_implicit_tiles,
}
