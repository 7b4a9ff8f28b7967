"""Copy columns from an image, or add them back to it; a column has the elements that an output pixel is computed from.

A block of columns has the elements at the taps `t0:t1` of channels `c0:c1` for some output pixels of one image. With
channels last it is stored pixel by pixel, otherwise tap by tap; padding is 0.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernelmark.kernels._copies import put_line
from kernelmark.kernels._numba import clear, part


@part
def met(tap, pad, stride, dilation, size, outputs):
    """Return the range of output indices along an axis for which a tap lies inside an image of length `size`."""
    first = max(0, -((tap * dilation - pad) // stride))
    last = (size - 1 + pad - tap * dilation) // stride + 1
    last = max(0, min(outputs, last))
    return min(first, last), last


@part
def by_tap(columns, x, g, at, block, first, last, back):
    """Copy the im2col columns of pixels first:last from the image at x[at]; back: add columns to the image (col2im)."""
    c0, c1, t0, t1 = block
    row = 0
    for c in range(c0, c1):
        for t in range(t0, t1):
            a, b = t // g.s * g.dilation_h - g.top, t % g.s * g.dilation_w - g.left
            inside = met(t % g.s, g.left, g.stride_w, g.dilation_w, g.w, g.q)
            pixel = first
            while pixel < last:
                i, start = pixel // g.q, pixel % g.q
                stop = min(g.q, start + last - pixel)
                h = i * g.stride_h + a
                low, high = min(max(start, inside[0]), stop), max(min(stop, inside[1]), start)
                if h < 0 or h >= g.h or low >= high:
                    low = high = stop
                if not back:
                    clear(columns, row, low - start)
                    clear(columns, row + high - start, stop - high)
                if low < high:
                    begin = at + c * g.x_c + h * g.x_h + low * g.stride_w + b
                    _row(columns, row + low - start, x, begin, g.stride_w, high - low, back)
                row += stop - start
                pixel += stop - start


@part
def _row(columns, row, x, begin, stride, count, back):
    """Copy elements of x, `stride` apart, to columns, or add columns to them; slices avoid negative-index checks."""
    if stride == 1:
        _run(columns, row, x, begin, count, back)
    else:
        line, there = columns[row : row + count], x[begin : begin + (count - 1) * stride + 1]
        if back:
            for j in range(count):
                there[j * stride] += line[j]
        else:
            for j in range(count):
                line[j] = there[j * stride]


@part
def _run(columns, row, x, begin, count, back):
    if back:
        put_line(x, begin, columns, row, count, True)
    else:
        put_line(columns, row, x, begin, count, False)


@part
def by_pixel(columns, x, g, at, block, first, last, back):
    """Copy or add columns as `by_tap` does, but with channels last; taps that are contiguous in x are copied together.

    The pixels may belong to several consecutive images.
    """
    c0, c1, t0, t1 = block
    depth, joined, place = c1 - c0, g.dilation_w == 1 and c1 - c0 == g.x_w, 0
    for pixel in range(first, last):
        line, image = pixel // g.q, pixel // g.q // g.p
        top, left = (line - image * g.p) * g.stride_h - g.top, (pixel - line * g.q) * g.stride_w - g.left
        t = t0
        while t < t1:
            a, b = t // g.s, t % g.s
            taps = min(g.s - b, t1 - t) if joined else 1
            h, w = top + a * g.dilation_h, left + b * g.dilation_w
            low, high = min(max(0, -w), taps), max(min(taps, g.w - w), 0)
            if h < 0 or h >= g.h or low >= high:
                low = high = taps
            if not back:
                clear(columns, place, low * depth)
                clear(columns, place + high * depth, (taps - high) * depth)
            if low < high:
                begin = at + image * g.x_n + h * g.x_h + (w + low) * g.x_w + c0
                _run(columns, place + low * depth, x, begin, (high - low) * depth, back)
            place += taps * depth
            t += taps
