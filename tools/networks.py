"""The layers of convolutional networks, in the order in which an image passes them."""

from collections.abc import Iterator
from typing import NamedTuple


class Conv(NamedTuple):
    """A convolution of square images: channels, side, filters, filter height and width, and padding as in an id."""

    c: int
    side: int
    k: int
    r: int
    s: int
    pad: int | str = 0
    stride: int = 1
    groups: int = 1

    @property
    def sizes(self) -> tuple[int | str, ...]:
        """Return all sizes but the groups, in the order of a sweep's axes: the side is both height and width."""
        return self.c, self.side, self.side, self.k, self.r, self.s, self.pad, self.stride


class Dense(NamedTuple):
    """A fully connected layer."""

    inputs: int
    outputs: int


Layer = Conv | Dense


def alexnet() -> Iterator[Layer]:
    """Return AlexNet's layers, without the two groups that two GPUs of 2012 required."""
    yield Conv(3, 227, 96, 11, 11, 0, 4)
    yield Conv(96, 27, 256, 5, 5, 2)
    yield Conv(256, 13, 384, 3, 3, 1)
    yield Conv(384, 13, 384, 3, 3, 1)
    yield Conv(384, 13, 256, 3, 3, 1)
    yield from (Dense(9216, 4096), Dense(4096, 4096), Dense(4096, 1000))


def vgg16(side: int = 224, hidden: int = 4096, classes: int = 1000) -> Iterator[Layer]:
    """Return VGG-16's layers: five blocks of 3x3 convolutions, with the side halved after each."""
    c = 3
    for k, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            yield Conv(c, side, k, 3, 3, 1)
            c = k
        side //= 2
    yield from (Dense(512 * side * side, hidden), Dense(hidden, hidden), Dense(hidden, classes))


def googlenet() -> Iterator[Layer]:
    """Return GoogLeNet's layers: table 1 of the paper, without auxiliary classifiers."""
    yield from (Conv(3, 224, 64, 7, 7, 3, 2), Conv(64, 56, 64, 1, 1), Conv(64, 56, 192, 3, 3, 1))
    for c, side, one, reduce3, three, reduce5, five, pool in (
        (192, 28, 64, 96, 128, 16, 32, 32),
        (256, 28, 128, 128, 192, 32, 96, 64),
        (480, 14, 192, 96, 208, 16, 48, 64),
        (512, 14, 160, 112, 224, 24, 64, 64),
        (512, 14, 128, 128, 256, 24, 64, 64),
        (512, 14, 112, 144, 288, 32, 64, 64),
        (528, 14, 256, 160, 320, 32, 128, 128),
        (832, 7, 256, 160, 320, 32, 128, 128),
        (832, 7, 384, 192, 384, 48, 128, 128),
    ):
        yield Conv(c, side, one, 1, 1)
        yield from (Conv(c, side, reduce3, 1, 1), Conv(reduce3, side, three, 3, 3, 1))
        yield from (Conv(c, side, reduce5, 1, 1), Conv(reduce5, side, five, 5, 5, 2))
        yield Conv(c, side, pool, 1, 1)
    yield Dense(1024, 1000)


def resnet50(inner: int = 1, groups: int = 1) -> Iterator[Layer]:
    """Return ResNet-50's layers: bottlenecks halve the side in their 3x3 convolution (version 1.5, as in MLPerf).

    inner: factor on the width of ResNet-50's 3x3 convolutions; groups: their number of groups.
    """
    yield Conv(3, 224, 64, 7, 7, 3, 2)
    c, side = 64, 56
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(count):
            stride = 2 if block == 0 and width > 64 else 1
            yield Conv(c, side, inner * width, 1, 1)
            yield Conv(inner * width, side, inner * width, 3, 3, 1, stride, groups)
            if block == 0:
                yield Conv(c, side, 4 * width, 1, 1, 0, stride)
            side //= stride
            yield Conv(inner * width, side, 4 * width, 1, 1)
            c = 4 * width
    yield Dense(2048, 1000)


def resnext50() -> Iterator[Layer]:
    """Return the layers of ResNeXt-50 (32x4d): table 1 of the paper, with strides in 3x3 layers as in torchvision."""
    return resnet50(2, 32)


def mobilenet2() -> Iterator[Layer]:
    """Return MobileNetV2's layers: table 2 of the paper; 1x1 convolutions widen, depthwise 3x3 follow, 1x1 narrow."""
    yield Conv(3, 224, 32, 3, 3, 1, 2)
    c, side = 32, 112
    for widen, k, count, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(count):
            stride, wide = first_stride if block == 0 else 1, widen * c
            if widen > 1:
                yield Conv(c, side, wide, 1, 1)
            yield Conv(wide, side, wide, 3, 3, 1, stride, wide)
            side //= stride
            yield Conv(wide, side, k, 1, 1)
            c = k
    yield from (Conv(320, 7, 1280, 1, 1), Dense(1280, 1000))


def inception3() -> Iterator[Layer]:
    """Return Inception v3's layers as in torchvision, from the paper's figures 5-7 and 10; no auxiliary classifier."""
    yield from (Conv(3, 299, 32, 3, 3, 0, 2), Conv(32, 149, 32, 3, 3), Conv(32, 147, 64, 3, 3, 1))
    yield from (Conv(64, 73, 80, 1, 1), Conv(80, 73, 192, 3, 3))
    for c, pool in ((192, 32), (256, 64), (288, 64)):
        yield from _inception_a(c, pool)
    yield from (Conv(288, 35, 384, 3, 3, 0, 2), Conv(288, 35, 64, 1, 1), Conv(64, 35, 96, 3, 3, 1))
    yield Conv(96, 35, 96, 3, 3, 0, 2)
    for width in (128, 160, 160, 192):
        yield from _inception_c(width)
    yield from (Conv(768, 17, 192, 1, 1), Conv(192, 17, 320, 3, 3, 0, 2), Conv(768, 17, 192, 1, 1))
    yield from (_across(192, 192), _down(192, 192), Conv(192, 17, 192, 3, 3, 0, 2))
    for c in (1280, 2048):
        yield from _inception_e(c)
    yield Dense(2048, 1000)


def _inception_a(c: int, pool: int) -> Iterator[Layer]:
    yield from (Conv(c, 35, 64, 1, 1), Conv(c, 35, 48, 1, 1), Conv(48, 35, 64, 5, 5, 2), Conv(c, 35, 64, 1, 1))
    yield from (Conv(64, 35, 96, 3, 3, 1), Conv(96, 35, 96, 3, 3, 1), Conv(c, 35, pool, 1, 1))


def _inception_c(width: int) -> Iterator[Layer]:
    yield from (Conv(768, 17, 192, 1, 1), Conv(768, 17, width, 1, 1), _across(width, width), _down(width, 192))
    yield from (Conv(768, 17, width, 1, 1), _down(width, width), _across(width, width), _down(width, width))
    yield from (_across(width, 192), Conv(768, 17, 192, 1, 1))


def _inception_e(c: int) -> Iterator[Layer]:
    split = (Conv(384, 8, 384, 1, 3, "0x1"), Conv(384, 8, 384, 3, 1, "1x0"))
    yield from (Conv(c, 8, 320, 1, 1), Conv(c, 8, 384, 1, 1), *split)
    yield from (Conv(c, 8, 448, 1, 1), Conv(448, 8, 384, 3, 3, 1), *split, Conv(c, 8, 192, 1, 1))


def _across(c: int, k: int) -> Conv:
    return Conv(c, 17, k, 1, 7, "0x3")


def _down(c: int, k: int) -> Conv:
    return Conv(c, 17, k, 7, 1, "3x0")


def cifar10_vgg() -> Iterator[Layer]:
    """Return the layers of VGG-16 on 32x32 images, with hidden layers of 512."""
    return vgg16(32, 512, 10)


def cifar10_quick() -> Iterator[Layer]:
    """Return the layers of Caffe's cifar10_quick: three 5x5 convolutions, each followed by pooling."""
    yield from (Conv(3, 32, 32, 5, 5, 2), Conv(32, 16, 32, 5, 5, 2), Conv(32, 8, 64, 5, 5, 2))
    yield from (Dense(1024, 64), Dense(64, 10))
