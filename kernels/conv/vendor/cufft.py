"""Convolution by FFT on a GPU with vendor libraries: cuFFT's transforms, and cuBLAS's products at each frequency.

The spectra of a tensor are stored as a matrix (channels x tiles of all images) for each frequency and group; cuFFT
writes and reads this layout.
"""

from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from kernelmark import Launch, kernel
from kernelmark.kernels._cuda import INT_LIMIT
from kernelmark.kernels.conv.fft._tiling import Cut, Cuts, Sides, cheapest, cuts, executed, whole
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem
from kernelmark.kernels.conv.vendor._cufft_movers import THREADS, blocks, cut_source, paste_source
from kernelmark.kernels.fft import _cufft
from kernelmark.kernels.gemm import _cublas

_SIDES = (16, 24, 32, 48, 64, 96, 128)
#: Rates of the model that chooses a side: only their ratio counts.
_BYTES_PER_S, _FLOP_PER_S = 2.5e12, 40e12
_MULTIPLY_ADD = 6  # operations of a complex multiply-add that uses three real products


class _Product(NamedTuple):
    """The tensors and operations in cuBLAS's C = op(A) op(B); rows of spectra are columns for cuBLAS."""

    a: str
    b: str
    c: str
    op_a: str
    op_b: str


# A correlation uses the conjugate of the operand that is shifted over the other.
_PRODUCTS = {
    "fprop": _Product("x", "w", "y", "N", "C"),
    "dgrad": _Product("y", "w", "x", "N", "N"),
    "wgrad": _Product("y", "x", "w", "C", "N"),
}


@lru_cache
def chosen(p: ConvProblem) -> Sides:
    """Return the height and width of the tile that is fastest according to the model."""
    return cheapest(p, (*_SIDES, max(whole(p))), _seconds)


def _seconds(c: Cuts) -> float:
    """Return the modelled seconds: to write and read tiles and their spectra (which are as large), and to multiply."""
    return 16 * c.points * c.planes / _BYTES_PER_S + _MULTIPLY_ADD * c.products / _FLOP_PER_S


@lru_cache(maxsize=1)  # cached plans keep their work areas
def _plans(problem: ConvProblem, sides: Sides) -> dict[str, Any]:
    """Return the plan of each tensor, for all operands of the problem, on the current stream."""
    product, c = _PRODUCTS[problem.direction], cuts(problem, sides)._asdict()
    kinds = {product.a: "r2c", product.b: "r2c", product.c: "c2r"}
    return {name: _plan(c[name], kind) for name, kind in kinds.items()}


def _plan(cut: Cut, kind: str) -> Any:
    """Return a plan for contiguous tiles whose spectra are interleaved: equal frequencies of all tiles are adjacent."""
    from cupy.cuda import cufft

    height, width = cut.height.side, cut.width.side
    tiles = ((height, width), 1, cut.points)
    spectra = ((height, width // 2 + 1), cut.planes, 1)
    layout = (*tiles, *spectra) if kind == "r2c" else (*spectra, *tiles)
    return cufft.PlanNd((height, width), *layout, _cufft.TYPES["f32", kind], cut.planes, "C", 1, None)


def _work_bytes(problem: ConvProblem, sides: Sides) -> int:
    return sum(int(plan.work_area.mem.size) for plan in _plans(problem, sides).values())


@lru_cache(maxsize=8)
def _movers(source: str) -> Any:
    import cupy

    return cupy.RawModule(code=source)


def _convolve(problem: ConvProblem, x: ConvOperands, sides: Sides) -> Launch:
    """Return a launch: cut and transform both inputs, multiply, transform back, paste; tensors share a tile buffer."""
    x.chose(tile="x".join(map(str, sides)))
    c, product, plans = cuts(problem, sides), _PRODUCTS[problem.direction], _plans(problem, sides)
    tiles = x.scratch((max(cut.planes for cut in c) * c.points,), "f32")
    spectra = {name: x.scratch((c.frequencies, cut.planes, 2), "f32") for name, cut in c._asdict().items()}
    a, b, result = (getattr(c, name) for name in product[:3])
    source = cut_source(product.a, a) + cut_source(product.b, b) + paste_source(product.c, result)
    movers, multiply = _movers(source), _product(problem, x, c, spectra)
    inputs = [(name, _mover(movers, f"cut_{name}", getattr(c, name).planes * c.points)) for name in product[:2]]
    paste, output = _mover(movers, f"paste_{product.c}", result.elements), product.c
    arrays = {name: getattr(x, name) for name in product[:3]}

    def launch() -> None:
        for name, cut in inputs:
            cut(arrays[name], tiles)
            plans[name].fft(tiles, spectra[name], _cufft.SIGNS["forward"])
        multiply()
        plans[output].fft(spectra[output], tiles, _cufft.SIGNS["inverse"])
        paste(tiles, arrays[output])

    return launch


def _mover(module: Any, name: str, count: int) -> Any:
    function, grid = module.get_function(name), (blocks(count),)
    return lambda source, target: function(grid, (THREADS,), (source, target))


def _product(problem: ConvProblem, x: ConvOperands, c: Cuts, spectra: dict[str, Any]) -> Launch:
    """Return a launch of all products; it divides them by the number of points, since cuFFT does not."""
    product = _PRODUCTS[problem.direction]
    a, _, result = (getattr(c, name) for name in product[:3])
    size = (result.places, result.channels, a.channels if product.op_a == "N" else a.places)
    matrices = []
    for name, op in ((product.a, product.op_a), (product.b, product.op_b), (product.c, "N")):
        cut: Cut = getattr(c, name)
        matrices.append(_cublas.Spectrum(int(spectra[name].data.ptr), op, cut.places, cut.channels * cut.places))
    batch = c.frequencies * problem.groups
    return _cublas.cgemm3m(SimpleNamespace(stream=x.stream), size, batch, 1 / c.points, *matrices)


def _fits_ints(problem: ConvProblem, sides: Sides) -> str | None:
    """Return why a count does not fit the C ints of cuFFT, of cuBLAS or of a grid's blocks, or None."""
    c = cuts(problem, sides)
    counts = {"transforms": max(cut.planes for cut in c), "products": c.frequencies * problem.groups}
    counts["blocks"] = max(blocks(max(cut.elements, cut.planes * cut.points)) for cut in c)
    for what, count in counts.items():
        if count > INT_LIMIT:
            return f"the problem has {count} {what}, expected at most {INT_LIMIT}"
    return None


def _version(problem: ConvProblem) -> str:
    return f"{_cufft.described(problem)}; {_cublas.described(problem)}"


_CUFFT: dict[str, Any] = {
    "provider": "cufft",
    "device": "cuda",
    "dtypes": ("f32",),
    "numerics": "fft",
    "modules": ("cupy",),
    "library_version": _version,
}


@kernel(
    "conv",
    supports=lambda p: _fits_ints(p, whole(p)),
    executed=lambda p: executed(cuts(p, whole(p)), _MULTIPLY_ADD),
    library_scratch=lambda p: _work_bytes(p, whole(p)) + _cublas.WORKSPACE_BYTES,
    **_CUFFT,
)
def full(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of whole images and of filters of the same size by cuFFT, with cuBLAS CGEMM3M per frequency."""
    return _convolve(problem, x, whole(problem))


@kernel(
    "conv",
    supports=lambda p: _fits_ints(p, chosen(p)),
    executed=lambda p: executed(cuts(p, chosen(p)), _MULTIPLY_ADD),
    library_scratch=lambda p: _work_bytes(p, chosen(p)) + _cublas.WORKSPACE_BYTES,
    **_CUFFT,
)
def tiled(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of overlapping tiles by cuFFT, with cuBLAS CGEMM3M per frequency; a model chooses the tile's sides."""
    return _convolve(problem, x, chosen(problem))
