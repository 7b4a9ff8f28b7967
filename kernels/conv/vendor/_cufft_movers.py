"""Kernels that cut a tensor into tiles and paste tiles back, compiled by CuPy with a problem's numbers as constants.

A thread computes its element by divisions, which are cheap with constant divisors.
"""

from string import Template

from kernelmark.kernels.conv.fft._tiling import Cut

THREADS = 256

_CUT = Template("""
extern "C" __global__ void cut_$name(const float* source, float* tiles) {
    const $index i = ($index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= $count) return;
    $index rest = i;
    const int w = rest % $side_w; rest /= $side_w;
    const int h = rest % $side_h; rest /= $side_h;
    const int tile_w = rest % $tiles_w; rest /= $tiles_w;
    const int tile_h = rest % $tiles_h; rest /= $tiles_h;
    const long long column = rest % $columns; rest /= $columns;
    const long long row = rest % $rows, group = rest / $rows;
    const int y = $first_h + tile_h * $step_h + h, x = $first_w + tile_w * $step_w + w;
    const bool taken = h < $extent_h && w < $extent_w && y >= 0 && x >= 0;
    const bool between = y % $spacing_h != 0 || x % $spacing_w != 0;
    const bool beyond = y / $spacing_h >= $size_h || x / $spacing_w >= $size_w;
    const long long first = group * $by_group + row * $by_row + column * $by_column;
    const long long at = first + y / $spacing_h * $by_h + x / $spacing_w * $by_w;
    tiles[i] = taken && !between && !beyond ? source[at] : 0.0f;
}
""")
_PASTE = Template("""
extern "C" __global__ void paste_$name(const float* tiles, float* target) {
    const $index i = ($index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= $count) return;
    $index rest = i;
    const int w = rest % $size_w; rest /= $size_w;
    const int h = rest % $size_h; rest /= $size_h;
    const long long plane = rest;
    const long long column = rest % $columns; rest /= $columns;
    const long long row = rest % $rows, group = rest / $rows;
    const int y = h * $spacing_h, x = w * $spacing_w;
    const long long tile = (plane * $tiles_h + y / $step_h) * $tiles_w + x / $step_w;
    const long long from = (tile * $side_h + y % $step_h + $lead_h) * $side_w + x % $step_w + $lead_w;
    target[group * $by_group + row * $by_row + column * $by_column + h * $by_h + w * $by_w] = tiles[from];
}
""")


def cut_source(name: str, cut: Cut) -> str:
    """Return the source of `cut_NAME`: one thread per element of the tiles, zero outside of the tensor."""
    return _CUT.substitute(_numbers(cut, cut.planes * cut.points), name=name)


def paste_source(name: str, cut: Cut) -> str:
    """Return the source of `paste_NAME`: one thread per element of the tensor, read from the tile that contains it."""
    return _PASTE.substitute(_numbers(cut, cut.elements), name=name)


def blocks(count: int) -> int:
    """Return the number of blocks of THREADS threads with one thread for each of `count` elements."""
    return -(-count // THREADS)


def _numbers(cut: Cut, count: int) -> dict[str, object]:
    numbers: dict[str, object] = {
        f"{field}_{letter}": number
        for letter, axis in (("h", cut.height), ("w", cut.width))
        for field, number in axis._asdict().items()
    }
    by = zip(("group", "row", "column", "h", "w"), cut.strides, strict=True)
    numbers |= {f"by_{axis}": f"{stride}LL" for axis, stride in by}
    index, suffix = ("unsigned", "u") if count + THREADS < 2**32 else ("unsigned long long", "ull")
    return numbers | {"count": f"{count}{suffix}", "rows": cut.channels, "columns": cut.images, "index": index}
