"""Write the generated suites: from layers of networks (networks.py), DeepBench's problems (data/), and by drawing.

`python tools/suites.py` writes bench/plan/suites/; tests/plan compares the files there with its output.
"""

import csv
import json
import math
import random
import textwrap
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import networks
from kernelmark.kernels.conv.fft.cpu import STRAIGHT
from kernelmark.kernels.conv.implicit.cuda import BROAD, LEAST, LOW, NARROW, SQUARE
from networks import Conv, Dense, Layer

DATA = Path(__file__).resolve().parent / "data"
FOLDER = DATA.parents[1] / "bench" / "plan" / "suites"
Row = dict[str, str]
Sizes = tuple[int | str, ...]
Case = tuple[str, tuple[int, int, int]]  # layout, (m, n, k), row-major
AXES = ("c", "h", "w", "k", "r", "s", "pad", "stride")
#: Kernels left out for filters of 1x1, and for others: these FFTs took at least five times as long as the fastest.
NO_FFT = ((["!conv/pyfftw.*", "!conv/numba.fft_tiled"], True), (["!conv/pyfftw.full"], False))


def read(name: str) -> list[Row]:
    """Return the rows of one list in order."""
    with (DATA / name).open(newline="") as lines:
        return list(csv.DictReader(lines))


def suite(title: str, source: str, made_from: str, notes: str, parts: Iterable[str], max_time: float = 0.0) -> str:
    """Return the text of a suite. made_from: the file with its list, if it is not this one."""
    comment = "\n".join(f"# {line}" for line in textwrap.wrap(" ".join(notes.split()), 116))
    origin = f" from {made_from}; edit those" if made_from else "; edit that"
    head = f"# Made by tools/suites.py{origin}.\ntitle = {json.dumps(title)}"
    limit = ["", f"max_time = {max_time}"] if max_time else []
    return "\n".join([f"{head}\nsource = {json.dumps(source)}\n\n{comment}", *limit, *parts, ""])


def table(op: str, cases: Counter[Any], axes: tuple[str, ...] | None, **fixed: Any) -> str:
    """Return a [[sweep]] over cases with their counts; `fixed` holds the other keys, left out if empty."""
    lines = [f'\n[[sweep]]\nop = "{op}"']
    lines += [f"{key} = {_value(key, value)}" for key, value in fixed.items() if value != ""]
    lines += [f"axes = {json.dumps(axes)}"] if axes else []
    lines += [f"points = {_wrapped(json.dumps(case) for case in cases)}"]
    if set(cases.values()) != {1}:
        lines += [f"count = {_wrapped(map(str, cases.values()))}"]
    return "\n".join(lines)


def _value(key: str, value: Any) -> str:
    text = json.dumps(value if key in ("network", "part") or isinstance(value, list) else [value])
    return text if len(text) < 100 else _wrapped(map(json.dumps, value))


def _wrapped(values: Iterable[str]) -> str:
    """Return a TOML list over several lines that breaks between values, never inside one."""
    glued = ", ".join(value.replace(" ", "~") for value in values)
    lines = textwrap.wrap(glued, 115, break_long_words=False, break_on_hyphens=False)
    return "[\n" + "\n".join(f"    {line}" for line in lines).replace("~", " ") + ",\n]"


def network(title: str, source: str, notes: str, *names: str) -> str:
    """Return a suite of one network, or of several with names, for one image in f32."""
    notes += """ The layers of one image, forward (fprop; NT for fully connected ones) and backward: the gradients of
        the weights (wgrad; TN) and of the data (dgrad; NN), except of the image itself. Counts: how many layers are
        alike."""
    parts = [part for name in names for part in _layers(name, name.rpartition("_")[2] if len(names) > 1 else "")]
    return suite(title, source, "tools/networks.py", notes, parts)


def _layers(function: str, name: str) -> Iterator[str]:
    layers: list[Layer] = list(getattr(networks, function)())
    convs = [layer for layer in layers if isinstance(layer, Conv)]
    dense = [layer for layer in layers if isinstance(layer, Dense)]
    axes = (*AXES, "groups") if any(conv.groups > 1 for conv in convs) else AXES
    for part, direction, chosen in (
        ("forward", "fprop", convs),
        ("backward", "wgrad", convs),
        ("backward", "dgrad", convs[1:]),
    ):
        cases = Counter((*conv.sizes, conv.groups)[: len(axes)] for conv in chosen)
        yield table("conv", cases, axes, network=name, part=part, dtype="f32", n=1, direction=direction)
    for part, layout, sizes in (
        ("forward", "NT", [(1, layer.outputs, layer.inputs) for layer in dense]),
        ("backward", "TN", [(layer.outputs, layer.inputs, 1) for layer in dense]),
        ("backward", "NN", [(1, layer.inputs, layer.outputs) for layer in dense]),
    ):
        yield table("gemm", Counter(sizes), None, network=name, part=part, dtype="f32", layout=layout)


#: The networks that conv-peers compares, by name; selectors are tested on their layers, which are never drawn.
PEERS = ("resnet50", "vgg16", "googlenet", "alexnet")


def conv_peers() -> str:
    """Return the text of conv-peers.toml."""
    return suite(
        "Convolution against oneDNN: layers of four networks, every direction, both layouts, 1 and 8 images",
        "the layers of the suites resnet50, vgg16, googlenet and alexnet",
        "tools/networks.py",
        "Each layer that differs stands once a network, in every direction, but for the gradient of the image itself. "
        "Layers are parts of no batch here, so nothing is summed; tools/conv_peers.py makes tables of a run. FFTs of "
        "whole images, and any FFT of 1x1 filters, are left out: on layers of networks, for one image, they took at "
        "least five times as long as the fastest kernel (reports/).",
        [part for name in PEERS for part in _peers(name)],
        0.3,
    )


def _peers(name: str) -> Iterator[str]:
    convs = [layer for layer in getattr(networks, name)() if isinstance(layer, Conv)]
    axes = {"dtype": "f32", "n": [1, 8], "layout": ["nchw", "nhwc"]}
    for direction, chosen in (("fprop", convs), ("dgrad", convs[1:]), ("wgrad", convs)):
        for kernels, is_pointwise in NO_FFT:
            sizes = (conv.sizes for conv in chosen if (conv.r == conv.s == 1) == is_pointwise)
            if cases := Counter(dict.fromkeys(sizes, 1)):
                yield table("conv", cases, AXES, network=name, **axes, direction=direction, kernels=kernels)


def deepbench_conv_case(row: Row) -> Sizes:
    """Return sizes as in an id, padding and stride as height x width."""
    pairs = ((row[f"{name}_h"], row[f"{name}_w"]) for name in ("pad", "stride"))
    sizes = (int(row[name]) for name in ("n", "c", "h", "w", "k", "r", "s"))
    return *sizes, *(int(height) if height == width else f"{height}x{width}" for height, width in pairs)


def deepbench_conv() -> str:
    """Return the text of deepbench-conv.toml."""
    rows = read("deepbench_conv.csv")
    every, training = (
        Counter(map(deepbench_conv_case, chosen)) for chosen in (rows, [r for r in rows if r["set"] == "training"])
    )
    return suite(
        f"DeepBench convolution: its {len(rows)} problems of training, server and device inference",
        "baidu-research/DeepBench, code/kernels/conv_problems.h (the sets of training, server and device)",
        "tools/data/deepbench_conv.csv",
        "Forward for every row; both gradients, as DeepBench has them, for those of training. Counts: how many of its "
        "rows have the shape.",
        [
            table("conv", every, ("n", *AXES), dtype="f32", direction="fprop"),
            table("conv", training, ("n", *AXES), dtype="f32", direction=["dgrad", "wgrad"]),
        ],
    )


def deepbench_gemm_case(row: Row) -> Case:
    """Return the row-major product on the same buffers as DeepBench's call, which is column-major.

    A column-major matrix is, row-major, its transpose; so C = op(A) op(B) is C^T = op(B)^T op(A)^T with the operands
    in the other order, m and n swapped and each operand's own flag kept: T,N (m, n, k) becomes NT (n, m, k).
    """
    return row["b_t"] + row["a_t"], (int(row["n"]), int(row["m"]), int(row["k"]))


def deepbench_gemm() -> str:
    """Return the text of deepbench-gemm.toml."""
    rows = read("deepbench_gemm.csv")
    return suite(
        f"DeepBench GEMM: its {len(rows)} problems of training, server and device inference",
        "baidu-research/DeepBench, code/kernels/gemm_problems.h (the sets of training, server and device)",
        "tools/data/deepbench_gemm.csv",
        "DeepBench calls a column-major BLAS with (m, n, k, a_t, b_t). Here stands the row-major product on the same "
        "buffers, C^T = op(B)^T op(A)^T: m and n change places, and the layout is b_t, then a_t. Its T,N is our NT. "
        "DeepBench's program for NVIDIA passes alpha = beta = 1; here it is the plain product, as in the other suites. "
        "Counts: how many of its rows have the shape.",
        _products(Counter(map(deepbench_gemm_case, rows))),
    )


def deepbench_rnn() -> str:
    """Return the text of deepbench-rnn.toml: the GEMMs of every row, counted in time steps."""
    rows, cases = read("deepbench_rnn.csv"), Counter[Case]()
    for row in rows:
        hidden, batch = int(row["hidden"]), int(row["batch"])
        gates = {"vanilla": 1, "gru": 3, "lstm": 4}[row["cell"]] * hidden
        cases["NT", (batch, gates, hidden)] += int(row["timesteps"])
        if row["set"] == "training":
            cases["NN", (batch, hidden, gates)] += int(row["timesteps"])
    return suite(
        f"DeepBench RNN: the GEMMs of a time step of its {len(rows)} recurrent layers",
        "baidu-research/DeepBench, code/kernels/rnn_problems.h; which GEMMs: code/nvidia/rnn_bench.cu",
        "tools/data/deepbench_rnn.csv",
        "A layer of h units holds a recurrent matrix R of g*h x h, row-major: g = 1 (vanilla), 3 (gru), 4 (lstm). "
        "NT: forward, the gates of a step are H R^T (m = batch, n = g*h, k = h). "
        "NN: gradient of the data, dH = dG R (m = batch, n = h, k = g*h); for the rows of training alone, as there. "
        "DeepBench takes CUDNN_SKIP_INPUT, so no GEMM of the inputs, and leaves out the gradient of the weights. "
        "Counts: time steps, summed over the rows that have the shape.",
        _products(cases),
    )


def _products(cases: Counter[Case]) -> Iterator[str]:
    for layout in dict.fromkeys(layout for layout, _ in cases):
        chosen = Counter({sizes: count for (own, sizes), count in cases.items() if own == layout})
        yield table("gemm", chosen, None, dtype="f32", layout=layout)


#: Problems of a suite that selectors are trained on, and seconds a case: a convolution's times differ more between
#: processes than within one.
CONVOLUTIONS, CONVOLUTION_S, PRODUCTS, PRODUCT_S = 570, 0.1, 390, 0.3
#: The most operations of a problem.
MOST_FLOP, SEED = 4e9, 22
#: The cost of a case in addition to its samples: calls that verify it and warm it up, at the rate of slow kernels.
CALLS, FLOP_PER_S = 20, 10e9
#: Layers with fewer channels read an image.
FEW_CHANNELS = 8
_NEAR = "drawn with a seed: channels and filters (multiples of 8) and side, each up to an octave around a layer's"


def held_out() -> set[Layer]:
    """Return the layers on which selectors are tested."""
    return {layer for name in PEERS for layer in getattr(networks, name)()}


def convolutions() -> list[Conv]:
    """Return convolutions near those of the networks; the taps and the stride of a layer stay together.

    A kind of layer (taps, stride, octave of the side, whether it reads an image) is drawn in proportion to the square
    root of its number of layers: half of the 84 layers are 1x1, but only three are 1x1 with stride 2, and two are 3x3
    on large images, too few to learn from. Layers are drawn at even distances, kind by kind, so that the problems of a
    direction, every third one, cover all kinds. A shape with too many operations is drawn again near the same layer,
    and the cheapest of three shapes is taken, so that the suite has many large layers and still is short.
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
    def near(size: int, least: int = 1) -> int:
        return max(least, round(size * 2 ** rng.uniform(-1, 1)))

    def channels(size: int) -> int:
        drawn = near(size)
        return drawn if size < FEW_CHANNELS else max(8, round(drawn / 8) * 8)

    while True:
        side = near(layer.side, layer.r)
        shape = layer._replace(c=channels(layer.c), side=side, k=channels(layer.k))
        if _flop(shape) <= MOST_FLOP:
            yield shape


def _kind(layer: Conv) -> tuple[int, int, int, bool]:
    return layer.r, layer.stride, round(math.log2(layer.side)), layer.c < FEW_CHANNELS


def _flop(layer: Conv) -> int:
    return 2 * layer.c * layer.k * (layer.side // layer.stride) ** 2 * layer.r * layer.s


def products() -> list[tuple[int, int, int]]:
    """Return products with m, n and k up to 8192, uniform in their logarithms, that are no network's layer."""
    rng, layers = random.Random(SEED), {layer for layer in held_out() if isinstance(layer, Dense)}
    sizes = {tuple(sorted((1, layer.inputs, layer.outputs))) for layer in layers}
    found: dict[tuple[int, int, int], None] = {}
    while len(found) < PRODUCTS:
        m, n, k = (round(2 ** rng.uniform(low, 13)) for low in (0, 4, 4))
        if tuple(sorted((m, n, k))) not in sizes and 1e5 <= 2 * m * n * k <= MOST_FLOP:
            found[m, n, k] = None
    return list(found)


def _training(title: str, source: str, notes: str, parts: Iterable[str], problems: int, seconds: float) -> str:
    how = (
        f" Sized for two processes within an hour on two cores: {problems} problems of at most {MOST_FLOP / 1e9:g} "
        f"GFLOP, of which a case takes {seconds} s of samples and {CALLS} calls at {FLOP_PER_S / 1e9:g} GFLOP/s "
        "besides; the test of this file adds them up. No layer of ResNet-50, VGG-16, GoogLeNet or AlexNet is part of "
        "it: those are the test of a selector."
    )
    return suite(f"Training, {title}, for kernelmark select", source, "", notes + how, parts, seconds)


def _thirds(convs: list[Conv]) -> Iterator[tuple[str, list[Conv]]]:
    for i, direction in enumerate(("fprop", "dgrad", "wgrad")):
        yield direction, convs[i::3]


def train_conv() -> str:
    """Return the text of train-conv.toml."""
    parts = []
    for direction, convs in _thirds(convolutions()):
        for kernels, is_pointwise in NO_FFT:
            cases = Counter(conv.sizes for conv in convs if (conv.r == 1) == is_pointwise)
            parts.append(table("conv", cases, AXES, dtype="f32", n=1, direction=direction, kernels=kernels))
    return _training(
        f"convolution: {CONVOLUTIONS} problems near the layers of four networks",
        _NEAR,
        "A third each forward and both gradients, one image. FFTs of whole images, and any FFT of 1x1 filters, are "
        "left out: on layers of networks they took at least five times as long as the fastest kernel, up to a second "
        "a call (reports/).",
        parts,
        CONVOLUTIONS,
        CONVOLUTION_S,
    )


def train_gemm() -> str:
    """Return the text of train-gemm.toml."""
    chosen = {"NT": products()[::2], "NN": products()[1::4], "TN": products()[3::4]}
    return _training(
        f"GEMM: {PRODUCTS} products from vectors to 8192",
        "drawn with a seed: m, n and k uniform in their logarithms",
        "Half of them are NT, where the kernels that transpose B first contend.",
        [
            table("gemm", Counter(sizes), None, dtype="f32", layout=layout, kernels=["!*_colmajor"])
            for layout, sizes in chosen.items()
        ],
        PRODUCTS,
        PRODUCT_S,
    )


#: Problems of a suite of FFT tiles in each direction, the sides of FFTW's tiles that are compared, and seconds a case.
TILED, SIDES, TILED_TIME_S = 24, (8, 12, 16, 20, 32, 48, 64, 80, 96, 128), 0.05
#: The most work of a convolution: channels x filters x pixels x log2(taps); it limits the suite to ten minutes.
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


def _tiles(title: str, source: str, convs: list[Conv], kernel: str, tiles: Iterable[str]) -> str:
    """Return a suite in which the tiles of a kernel contend with the tile that it chooses itself."""
    kernels = [kernel, *(f"{kernel}@{tile}" for tile in tiles)]
    fixed = {"dtype": "f32", "n": 1}
    parts = [
        table("conv", Counter(conv.sizes for conv in part), AXES, **fixed, direction=direction, kernels=kernels)
        for direction, part in _thirds(convs)
    ]
    notes = "The first kernel chooses its tile by itself; `kernelmark select --train RUN` prints what that costs."
    return suite(f"Training, tiles of {title}", source, "", notes, parts, TILED_TIME_S)


def _fft_tiles(kernel: str, sides: Iterable[int]) -> str:
    title = f"{kernel}: {3 * TILED} problems by the sides of their tiles"
    source = "drawn with a seed: channels, filters, side and taps, uniform in their logarithms"
    return _tiles(title, source, tiled(), kernel, (f"HEIGHT={side},WIDTH={side}" for side in sides))


def train_implicit_tiles() -> str:
    """Return the text of train-implicit-tiles.toml."""
    title = f"implicit GEMM on a GPU: the {CONVOLUTIONS} problems of train-conv"
    tiles = (f"BM={tile['BM']},BN={tile['BN']}" for tile in (LEAST, LOW, NARROW, SQUARE, BROAD))
    return _tiles(title, _NEAR, convolutions(), "conv/cuda.implicit", tiles)


#: Suites of networks: the title, the source and notes.
NETWORKS = {
    "alexnet": (
        "AlexNet",
        "Krizhevsky, Sutskever, Hinton, NIPS 2012",
        "Without its two groups; 227x227 images, of which 224 and their padding are one reading.",
    ),
    "vgg16": ("VGG-16", "Simonyan, Zisserman, ICLR 2015, configuration D", ""),
    "googlenet": (
        "GoogLeNet",
        "Szegedy et al., Going deeper with convolutions, CVPR 2015, table 1",
        "All nine inception modules, no auxiliary classifiers.",
    ),
    "inception3": (
        "Inception v3",
        "Szegedy et al., Rethinking the Inception Architecture, CVPR 2016; sizes as in torchvision",
        "No auxiliary classifier.",
    ),
    "resnet50": ("ResNet-50", "He et al., CVPR 2016; version 1.5, whose 3x3 convolutions halve the side", ""),
    "resnext50": (
        "ResNeXt-50 (32x4d)",
        "Xie et al., Aggregated Residual Transformations, CVPR 2017, table 1; strides as in torchvision",
        "The 3x3 convolutions have 32 groups.",
    ),
    "mobilenet2": (
        "MobileNet-v2",
        "Sandler et al., MobileNetV2, CVPR 2018, table 2; sizes as in torchvision",
        "The 3x3 convolutions are depthwise, but for the first.",
    ),
}


def _network(name: str) -> str:
    title, source, notes = NETWORKS[name]
    return network(f"{title}: forward and backward, one image", source, notes, name)


SUITES: dict[str, Callable[[], str]] = {
    **{f"{name}.toml": lambda name=name: _network(name) for name in NETWORKS},  # type: ignore[misc]
    "cifar10.toml": lambda: network(
        "CIFAR-10: a VGG-like network and a small CNN, forward and backward, one image",
        "VGG-16 on 32x32 images; Caffe, examples/cifar10/cifar10_quick_train_test.prototxt",
        "",
        "cifar10_vgg",
        "cifar10_quick",
    ),
    "conv-peers.toml": conv_peers,
    "deepbench-conv.toml": deepbench_conv,
    "deepbench-gemm.toml": deepbench_gemm,
    "deepbench-rnn.toml": deepbench_rnn,
    "train-conv.toml": train_conv,
    "train-gemm.toml": train_gemm,
    "train-fft-tiles.toml": lambda: _fft_tiles("conv/pyfftw.tiled", SIDES),
    "train-numba-fft-tiles.toml": lambda: _fft_tiles("conv/numba.fft_tiled", STRAIGHT),
    "train-implicit-tiles.toml": train_implicit_tiles,
}

if __name__ == "__main__":
    for name, text in SUITES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
