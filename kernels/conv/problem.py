"""Convolution of a batch of images with a bank of filters: forward (fprop), and the gradients of input and filter."""

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from kernelmark import DTYPES, Array, Arrays, Dim, Operand, Problem, Verdict, operation

#: An axis that takes one number, or what differs between height and width: `1x2`, `0-1x0-1`.
Spatial = int | str
_NUMBER = re.compile(r"\d+")


class ConvOperands(Protocol):
    """What a set-up is handed: `x`, `w` and `y` in the problem's layout, thread count, stream and scratch.

    One of them is the output: `y` of fprop, `x` of dgrad, `w` of wgrad; the others are read.
    """

    x: Any
    w: Any
    y: Any
    threads: int
    stream: Any

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def launch(self, kernel: str, problem: str, **arrays: Any) -> Any: ...
    def chose(self, **settings: Any) -> None: ...


class Pad(NamedTuple):
    """Rows or columns of zeros before and behind an image."""

    before: int
    behind: int


@operation("conv")
class ConvProblem(Problem, frozen=True, kw_only=True):
    """Cross-correlation, as deep learning has it: y[n,k,i,j] = sum over c,a,b of x[n,c,i s_h+a d_h-p_h,...] w[k,c,a,b].

    x: n images of c channels, h x w. w: k filters of c / groups channels, r x s. y: n images of k channels, p x q.
    `nchw` stores x as n,c,h,w, w as k,c/g,r,s and y as n,k,p,q; `nhwc` has the channels last in all three.
    direction: `fprop` y from x and w; `dgrad` x (the input's gradient) from y and w; `wgrad` w from x and y.
    pad, stride, dilation: one number, or height x width; `0-1x0-1` where the two ends of an axis differ in padding.
    One-dimensional convolution has h = r = 1, depthwise c = groups.
    """

    sizes: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w", "k", "r", "s")
    suffixes: ClassVar[tuple[str, ...]] = ("pad", "stride")

    n: Dim
    c: Dim
    h: Dim
    w: Dim
    k: Dim
    r: Dim
    s: Dim
    dtype: Literal["f32", "f16", "bf16"]
    layout: Literal["nchw", "nhwc"] = "nchw"
    direction: Literal["fprop", "dgrad", "wgrad"] = "fprop"
    pad: Spatial = 0
    stride: Spatial = 1
    dilation: Spatial = 1
    groups: Dim = 1

    def __post_init__(self) -> None:
        for name in ("pad", "stride", "dilation"):
            msgspec.structs.force_setattr(self, name, _canonical(name, getattr(self, name)))
        for name in ("c", "k"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"groups is {self.groups}, expected a divisor of {name} = {getattr(self, name)}")
        for image, taps, pad, dilation in (
            ("h", "r", self.pad_h, self.dilation_h),
            ("w", "s", self.pad_w, self.dilation_w),
        ):
            padded, spanned = getattr(self, image) + sum(pad), (getattr(self, taps) - 1) * dilation + 1
            if spanned > padded:
                raise ValueError(
                    f"{taps} is {getattr(self, taps)}{_spans(spanned, dilation)}, expected at most the "
                    f"padded image's {padded} (the output's size would be negative or 0)"
                )

    @property
    def pad_h(self) -> Pad:
        return Pad(*_ends(self.pad)[0])

    @property
    def pad_w(self) -> Pad:
        return Pad(*_ends(self.pad)[1])

    @property
    def stride_h(self) -> int:
        return _ends(self.stride)[0][0]

    @property
    def stride_w(self) -> int:
        return _ends(self.stride)[1][0]

    @property
    def dilation_h(self) -> int:
        return _ends(self.dilation)[0][0]

    @property
    def dilation_w(self) -> int:
        return _ends(self.dilation)[1][0]

    @property
    def p(self) -> int:
        """Height of the output."""
        return (self.h + sum(self.pad_h) - (self.r - 1) * self.dilation_h - 1) // self.stride_h + 1

    @property
    def q(self) -> int:
        """Width of the output."""
        return (self.w + sum(self.pad_w) - (self.s - 1) * self.dilation_w - 1) // self.stride_w + 1

    @property
    def unit_stride(self) -> bool:
        return self.stride == 1

    @property
    def unit_dilation(self) -> bool:
        return self.dilation == 1

    @property
    def reduction(self) -> int:
        """Products that are added up to one element of the output, where no padding is in the way."""
        taps = self.r * self.s
        lengths = {"fprop": self.c // self.groups * taps, "dgrad": self.k // self.groups * taps}
        return lengths.get(self.direction, self.n * self.p * self.q)

    @property
    def ctype(self) -> str:
        """C++ name of the storage type."""
        return DTYPES[self.dtype].ctype

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
                "behind the storage type"
            )
        values: dict[str, Any] = {"layout": words[0], "direction": words[1]}
        for word in words[2:]:
            if word.startswith("dil"):
                values["dilation"] = word[3:]
            elif match := re.fullmatch(r"g(\d+)", word):
                values["groups"] = int(match[1])
            else:
                raise ValueError(f"{word!r} is not a part of a conv id; expected dilN or gN")
        return values

    @classmethod
    def complaint(cls, axis: str, value: Any) -> str | None:
        if axis in ("pad", "stride", "dilation") and (type(value) is int or isinstance(value, str)):
            try:
                _canonical(axis, value)
            except ValueError as error:
                return str(error)
        return super().complaint(axis, value)

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        """Layers of VGG and ResNet, few and many channels, images and taps; depthwise; with and without a stride."""
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

    def operands(self) -> tuple[Operand, ...]:
        depth = self.c // self.groups
        shapes = {
            "x": (self.n, self.c, self.h, self.w),
            "w": (self.k, depth, self.r, self.s),
            "y": (self.n, self.k, self.p, self.q),
        }
        output = {"fprop": "y", "dgrad": "x", "wgrad": "w"}[self.direction]
        if self.layout == "nhwc":
            shapes = {name: (a, c, d, b) for name, (a, b, c, d) in shapes.items()}
        return tuple(
            Operand(name, shape, self.dtype, "out" if name == output else "in") for name, shape in shapes.items()
        )

    def reference(self, inputs: Arrays, rng: np.random.Generator) -> Any:
        from kernels.conv._reference import reference

        return reference(self, inputs, rng)

    def check(self, outputs: Arrays, reference: Any, numerics: str) -> Verdict:
        (name,) = (operand.name for operand in self.operands() if operand.role == "out")
        return reference.check(name, as_nchw(outputs[name], self.layout), numerics)  # type: ignore[no-any-return]

    def tolerance(self, numerics: str) -> float:
        """Bound of the absolute error for operands uniform in [-1, 1]."""
        from kernels.conv._tolerance import tolerance

        return tolerance(self, numerics)

    @property
    def flop(self) -> int:
        """As direct convolution has it, padding multiplied like the rest, whatever the algorithm executes."""
        return 2 * self.n * self.k * self.p * self.q * (self.c // self.groups) * self.r * self.s


def as_nchw(array: Array, layout: str) -> Array:
    """A view of x, w or y with the channels in second place."""
    return array.transpose(0, 3, 1, 2) if layout == "nhwc" else array


def _ends(value: Spatial) -> list[tuple[int, int]]:
    """(before, behind) of height and of width."""
    dims = [tuple(int(end) for end in part.split("-")) for part in str(value).split("x")]
    return [(dim[0], dim[-1]) for dim in (dims * 2)[:2]]


def _canonical(name: str, value: Spatial) -> Spatial:
    """The shortest way to write the same, so that equal problems have equal ids. Raises ValueError."""
    least, end = (0, r"\d+(-\d+)?") if name == "pad" else (1, r"\d+")
    if not re.fullmatch(f"{end}(x{end})?", str(value)) or any(number < least for number in _numbers(value)):
        forms = "1, 1x2 or 0-1x0-1" if name == "pad" else "2 or 1x2"
        raise ValueError(f"{name} is {value!r}, expected integers >= {least}, as in {forms}")
    height, width = (str(a) if a == b else f"{a}-{b}" for a, b in _ends(value))
    if height != width or "-" in height:
        return f"{height}x{width}"
    return int(height)


def _numbers(value: Spatial) -> list[int]:
    return [int(number) for number in _NUMBER.findall(str(value))]


def _spans(spanned: int, dilation: int) -> str:
    return f", which spans {spanned} when dilated by {dilation}" if dilation > 1 else ""
