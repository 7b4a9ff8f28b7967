"""The sizes and strides of a convolution for loops in Numba."""

from typing import Any, NamedTuple

from kernelmark.kernels.conv.problem import ConvProblem


class Shape(NamedTuple):
    """The sizes of a problem (`c` and `k` per group) and its strides in elements; `x_n` is the stride of x along n.

    In y, the p x q pixels form one axis. In w and its gradient, c, r and s together form one axis after k.
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    p: int
    q: int
    groups: int
    top: int
    left: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    x_n: int
    x_c: int
    x_h: int
    x_w: int
    y_n: int
    y_k: int
    y_pixel: int
    w_c: int
    w_tap: int
    channels_last: bool


def shape(problem: ConvProblem) -> Shape:
    """Return the sizes and strides of a problem in its layout."""
    c, h, w, k, taps, pixels = problem.c, problem.h, problem.w, problem.k, problem.r * problem.s, problem.p * problem.q
    depth, last = c // problem.groups, problem.layout == "nhwc"
    strides: dict[str, Any] = (
        {"x_c": 1, "x_h": w * c, "x_w": c, "y_k": 1, "y_pixel": k, "w_c": 1, "w_tap": depth}
        if last
        else {"x_c": h * w, "x_h": w, "x_w": 1, "y_k": pixels, "y_pixel": 1, "w_c": taps, "w_tap": 1}
    )
    return Shape(
        n=problem.n,
        c=depth,
        h=h,
        w=w,
        k=k // problem.groups,
        r=problem.r,
        s=problem.s,
        p=problem.p,
        q=problem.q,
        groups=problem.groups,
        top=problem.pad_h.before,
        left=problem.pad_w.before,
        stride_h=problem.stride_h,
        stride_w=problem.stride_w,
        dilation_h=problem.dilation_h,
        dilation_w=problem.dilation_w,
        x_n=c * h * w,
        y_n=k * pixels,
        channels_last=last,
        **strides,
    )
