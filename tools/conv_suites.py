"""Writes the suites of convolutional networks (tools/networks.py) and DeepBench's convolutions (tools/data/).

`python tools/suites.py` writes them with the others; tests/plan/test_conv_suites.py compares.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from networks import (
    Conv,
    Dense,
    Layer,
    alexnet,
    cifar10_quick,
    cifar10_vgg,
    googlenet,
    inception3,
    mobilenet2,
    resnet50,
    resnext50,
    vgg16,
)
from suite_text import NO_FFT, NO_FULL_FFT, Row, header, read, table

AXES = ("c", "h", "w", "k", "r", "s", "pad", "stride")


def network(title: str, source: str, notes: str, **nets: Callable[[], Iterator[Layer]]) -> str:
    """A suite of one network, or of several that are named in it. One image, f32."""
    parts = [part for name, net in nets.items() for part in _sweeps(list(net()), name if len(nets) > 1 else "")]
    head = header(title, source, "Made by tools/suites.py from tools/networks.py; edit those.", f"{notes} {_NOTES}")
    return "\n".join([head, *parts, ""])


_NOTES = """The layers of one image, forward (fprop; NT for fully connected ones) and backward: the gradients of the
weights (wgrad; TN) and of the data (dgrad; NN), except of the image itself. Counts: how many layers are alike."""


def _sweeps(layers: list[Layer], name: str) -> Iterator[str]:
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


#: What conv-peers compares, by the names that its rows are asked for.
PEERS: dict[str, Callable[[], Iterator[Layer]]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "googlenet": googlenet,
    "alexnet": alexnet,
}


def conv_peers() -> str:
    """The text of conv-peers.toml."""
    head = header(
        "Convolution against oneDNN: layers of four networks, every direction, both layouts, 1 and 8 images",
        "the layers of the suites resnet50, vgg16, googlenet and alexnet",
        "Made by tools/suites.py from tools/networks.py; edit those.",
        "Each layer that differs stands once a network, in every direction, but for the gradient of the image itself. "
        "Layers are parts of no batch here, so nothing is summed; tools/conv_peers.py makes tables of a run. FFTs of "
        "whole images, and any FFT of 1x1 filters, are left out: on layers of networks, for one image, they took at "
        "least five times as long as the fastest kernel (reports/).",
    )
    parts = [part for name, net in PEERS.items() for part in _peers(name, net())]
    return "\n".join([head, "", "max_time = 0.3", *parts, ""])


def _peers(name: str, layers: Iterator[Layer]) -> Iterator[str]:
    convs = [layer for layer in layers if isinstance(layer, Conv)]
    axes = {"dtype": "f32", "n": [1, 8], "layout": ["nchw", "nhwc"]}
    for direction, chosen in (("fprop", convs), ("dgrad", convs[1:]), ("wgrad", convs)):
        for kernels, is_pointwise in ((NO_FFT, True), (NO_FULL_FFT, False)):
            sizes = (conv.sizes for conv in chosen if (conv.r == conv.s == 1) == is_pointwise)
            if cases := Counter(dict.fromkeys(sizes, 1)):
                yield table("conv", cases, AXES, network=name, **axes, direction=direction, kernels=kernels)


def deepbench_conv_cases(rows: Iterable[Row]) -> Counter[tuple[int | str, ...]]:
    """Each shape once, with the number of rows that have it, in the order of the file."""
    return Counter(map(deepbench_conv_case, rows))


def deepbench_conv_case(row: Row) -> tuple[int | str, ...]:
    """Sizes as in an id, padding and stride as height x width."""
    sizes = (int(row[name]) for name in ("n", "c", "h", "w", "k", "r", "s"))
    return *sizes, _pair(row["pad_h"], row["pad_w"]), _pair(row["stride_h"], row["stride_w"])


def _pair(height: str, width: str) -> int | str:
    return int(height) if height == width else f"{height}x{width}"


def deepbench_conv() -> str:
    """The text of deepbench-conv.toml."""
    rows = read("deepbench_conv.csv")
    training = deepbench_conv_cases(row for row in rows if row["set"] == "training")
    head = header(
        f"DeepBench convolution: its {len(rows)} problems of training, server and device inference",
        "baidu-research/DeepBench, code/kernels/conv_problems.h (the sets of training, server and device)",
        "Made by tools/suites.py from tools/data/deepbench_conv.csv; edit those.",
        "Forward for every row; both gradients, as DeepBench has them, for those of training. Counts: how many of its "
        "rows have the shape.",
    )
    axes = ("n", *AXES)
    parts = [table("conv", deepbench_conv_cases(rows), axes, dtype="f32", direction="fprop")]
    parts += [table("conv", training, axes, dtype="f32", direction=["dgrad", "wgrad"])]
    return "\n".join([head, *parts, ""])


SUITES: dict[str, Callable[[], str]] = {
    "alexnet.toml": lambda: network(
        "AlexNet: forward and backward, one image",
        "Krizhevsky, Sutskever, Hinton, NIPS 2012",
        "Without its two groups; 227x227 images, of which 224 and their padding are one reading.",
        alexnet=alexnet,
    ),
    "vgg16.toml": lambda: network(
        "VGG-16: forward and backward, one image", "Simonyan, Zisserman, ICLR 2015, configuration D", "", vgg16=vgg16
    ),
    "googlenet.toml": lambda: network(
        "GoogLeNet: forward and backward, one image",
        "Szegedy et al., Going deeper with convolutions, CVPR 2015, table 1",
        "All nine inception modules, no auxiliary classifiers.",
        googlenet=googlenet,
    ),
    "inception3.toml": lambda: network(
        "Inception v3: forward and backward, one image",
        "Szegedy et al., Rethinking the Inception Architecture, CVPR 2016; sizes as in torchvision",
        "No auxiliary classifier.",
        inception3=inception3,
    ),
    "resnet50.toml": lambda: network(
        "ResNet-50: forward and backward, one image",
        "He et al., CVPR 2016; version 1.5, whose 3x3 convolutions halve the side",
        "",
        resnet50=resnet50,
    ),
    "resnext50.toml": lambda: network(
        "ResNeXt-50 (32x4d): forward and backward, one image",
        "Xie et al., Aggregated Residual Transformations, CVPR 2017, table 1; strides as in torchvision",
        "The 3x3 convolutions have 32 groups.",
        resnext50=resnext50,
    ),
    "mobilenet2.toml": lambda: network(
        "MobileNet-v2: forward and backward, one image",
        "Sandler et al., MobileNetV2, CVPR 2018, table 2; sizes as in torchvision",
        "The 3x3 convolutions are depthwise, but for the first.",
        mobilenet2=mobilenet2,
    ),
    "conv-peers.toml": conv_peers,
    "cifar10.toml": lambda: network(
        "CIFAR-10: a VGG-like network and a small CNN, forward and backward, one image",
        "VGG-16 on 32x32 images; Caffe, examples/cifar10/cifar10_quick_train_test.prototxt",
        "",
        vgg=cifar10_vgg,
        quick=cifar10_quick,
    ),
    "deepbench-conv.toml": deepbench_conv,
}
