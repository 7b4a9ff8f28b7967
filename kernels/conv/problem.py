"""Convolution of a batch of images with a bank of filters: forward (fprop), and the gradients of input and filter."""

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np

from kernelmark import (
    WHOLE,
    Arrays,
    Bound,
    Changes,
    Checksums,
    EmulatedSizes,
    Features,
    Operand,
    Tile,
    Verdict,
    operation,
)
from kernelmark.kernels.conv._checksums import ChannelSums
from kernelmark.kernels.conv._emulated import emulated
from kernelmark.kernels.conv._reference import SPECIALS, Reference, reference
from kernelmark.kernels.conv._sizes import ConvSizes, as_nchw, canonical
from kernelmark.kernels.conv._tolerance import tolerance

#: The largest special values of every third draw: as in other operations, or as large as FP16 sums allow. Those of
#: other draws are smaller, since algorithms that transform operands spread the errors of a value over its neighbours.
LARGE, F16_LARGE = 1e3, 16.0


class ConvOperands(Protocol):
    """The operands of a set-up: `x`, `w` and `y` in the problem's layout, thread count, stream and scratch.

    The output is `y` for fprop, `x` for dgrad, `w` for wgrad; the others are read.
    """

    x: Any
    w: Any
    y: Any
    threads: int
    stream: Any
    tile: Tile

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def launch(self, kernel: str, problem: str, **arrays: Any) -> Any: ...
    def chose(self, **settings: Any) -> None: ...


@operation("conv")
class ConvProblem(ConvSizes, frozen=True, kw_only=True):
    """Cross-correlation, as in deep learning: y[n,k,i,j] = sum over c,a,b of x[n,c,i s_h+a d_h-p_h,...] w[k,c,a,b].

    x: n images of c channels, h x w. w: k filters of c / groups channels, r x s. y: n images of k channels, p x q.
    `nchw` stores x as n,c,h,w, w as k,c/g,r,s and y as n,k,p,q; `nhwc` has the channels last in all three.
    direction: `fprop` y from x and w; `dgrad` x (the input's gradient) from y and w; `wgrad` w from x and y.
    pad, stride, dilation: one number, or height x width; `0-1x0-1` if the two ends of an axis differ in padding.
    One-dimensional convolution has h = r = 1, depthwise c = groups.
    """

    sizes: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "r", "s")
    suffixes: ClassVar[tuple[str, ...]] = ("pad", "stride")
    features: ClassVar[Features] = Features(
        inputs=("n", "c", "h", "w", "k", "r", "s", "p", "q", "stride_h", "stride_w", "dilation_h", "groups"),
        expressions=(
            "n", "c", "k", "p", "r", "s", "stride_h", "stride_w", "dilation_h", "groups", "h * w", "p * q", "r * s",
            "c / k", "c / groups * r * s", "p * q / (c / groups * r * s)",
            "n * c * h * w", "n * k * p * q", "k * c / groups * r * s",
            "n * c * h * w + n * k * p * q + k * c / groups * r * s", "n * k * p * q * c / groups * r * s",
        ),
        slopes=("n * p * q", "c / groups", "k / groups", "r * s", "stride_h * stride_w", "groups"),
        held=("pad", "stride", "dilation"),
        libraries=("conv/cudnn_frontend.fma", "conv/torch.conv2d"),
    )  # fmt: skip

    @property
    def unit_stride(self) -> bool:
        return self.stride == 1

    def suffix(self) -> str:
        return "".join(
            f"{name}{getattr(self, name)}"
            for name, default in (("pad", 0), ("stride", 1))
            if getattr(self, name) != default
        )

    def words(self) -> list[str]:
        words: list[str] = [self.layout, self.direction]
        words += [f"dil{self.dilation}"] if self.dilation != 1 else []
        return words + ([f"g{self.groups}"] if self.groups > 1 else [])

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if len(words) < 2:
            raise ValueError(
                "has no layout and direction; expected one of nchw, nhwc and one of fprop, dgrad, wgrad "
                "after the storage type"
            )
        values: dict[str, Any] = {"layout": words[0], "direction": words[1]}
        for word in words[2:]:
            before = len(values)
            if word.startswith("dil"):
                values["dilation"] = word[3:]
            elif match := re.fullmatch(f"g({WHOLE})", word):
                values["groups"] = int(match[1])
            else:
                raise ValueError(f"{word!r} is not a part of a conv id; expected dilN or gN")
            if len(values) == before:
                raise ValueError(f"{word!r} contradicts or repeats an earlier part, expected each only once")
        return values

    @classmethod
    def complaint(cls, axis: str, value: Any) -> str | None:
        if axis in ("pad", "stride", "dilation") and (type(value) is int or isinstance(value, str)):
            try:
                canonical(axis, value)
            except ValueError as error:
                return str(error)
        return super().complaint(axis, value)

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        """Yield layers of VGG and ResNet with few and many channels, images and taps; some are depthwise or strided."""
        for n, c, side, k, taps, stride, groups in (
            (32, 256, 56, 256, 3, 1, 1),
            (32, 128, 28, 128, 3, 1, 1),
            (1, 64, 56, 64, 3, 1, 1),
            (1, 64, 14, 32, 3, 1, 1),
            (32, 256, 56, 64, 1, 1, 1),
            (128, 64, 64, 128, 9, 1, 1),
            (32, 3, 224, 64, 7, 2, 1),
            (32, 64, 56, 64, 3, 1, 64),
            (1, 4, 7, 4, 3, 1, 1),
        ):
            sizes = {"n": n, "c": c, "h": side, "w": side, "k": k, "r": taps, "s": taps}
            yield {**sizes, "pad": taps // 2, "stride": stride, "groups": groups}

    @property
    def row_lengths(self) -> tuple[int, ...]:
        """Return the lengths of the rows of x and y as stored."""
        return tuple(operand.shape[-1] for operand in self.operands() if operand.name in ("x", "y"))

    @classmethod
    def emulated_sizes(cls) -> EmulatedSizes:
        return emulated(cls)

    @property
    def baselines(self) -> tuple[str, ...]:
        return ("conv/cpu.im2col",)

    def operands(self) -> tuple[Operand, ...]:
        shapes = self.shapes()
        if self.layout == "nhwc":
            shapes = {name: (a, c, d, b) for name, (a, b, c, d) in shapes.items()}
        others = F16_LARGE if self.dtype == "f16" else LARGE
        return tuple(
            Operand(name, shape, self.dtype, "out" if name == self.output else "in", specials=SPECIALS, others=others)
            for name, shape in shapes.items()
        )

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Reference:
        return reference(self, inputs, rng)

    def check(self, outputs: Arrays, reference: Reference, numerics: str) -> Verdict:
        output = as_nchw(outputs[self.output], self.layout)
        return reference.check(self.output, output, self.tolerance(numerics), numerics)

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums:
        """Return a check of the output's weighted sums over the channels of each pixel (wgrad: over the filters)."""
        sums = ChannelSums(self, {name: as_nchw(array, self.layout) for name, array in inputs.items()}, rng)

        def wrong(outputs: Arrays, now: Arrays, changes: Changes, numerics: str) -> str | None:
            arrays = {name: as_nchw(array, self.layout) for name, array in {**now, **outputs}.items()}
            changed = {
                name: (
                    (index[0], index[3], *index[1:3]) if self.layout == "nhwc" else index,
                    now[name][index].astype(np.float64),
                    before.astype(np.float64),
                )
                for name, (index, before) in changes.items()
            }
            return sums.wrong(arrays[self.output], arrays, changed, self.tolerance(numerics), numerics)

        return wrong

    def tolerance(self, numerics: str) -> Bound:
        """Return the bound on the errors, as a multiple of the reference's `unit`."""
        return tolerance(self, numerics)
