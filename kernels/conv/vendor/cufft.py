"""Convolution by FFT on a GPU out of a vendor's parts: cuFFT's transforms, cuBLAS's products at each frequency."""

from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from kernelmark import Launch, kernel
from kernels._cuda import INT_LIMIT
from kernels.conv.problem import ConvOperands, ConvProblem
from kernels.conv.vendor._cufft import Cut, Cuts, cheapest, cuts, executed, whole
from kernels.conv.vendor._cufft_movers import THREADS, blocks, cut_source, paste_source
from kernels.gemm import _cublas

Sides = tuple[int, int]
# Values of cufft.h.
_R2C, _C2R, _FORWARD, _INVERSE = 0x2A, 0x2C, -1, 1


class _Product(NamedTuple):
    """C = op(A) op(B) in columns, of spectra that lie in rows: m, n, k by row and column, and the operations."""

    a: str
    b: str
    c: str
    op_a: str
    op_b: str


# A correlation takes the conjugate of what is shifted over the other.
_PRODUCTS = {
    "fprop": _Product("x", "w", "y", "N", "C"),
    "dgrad": _Product("y", "w", "x", "N", "N"),
    "wgrad": _Product("y", "x", "w", "C", "N"),
}


@lru_cache(maxsize=1)  # whose work areas are held as long
def _plans(problem: ConvProblem, sides: Sides) -> dict[str, Any]:
    """Of each tensor, good for all operands of the problem, on the stream that is current."""
    product, c = _PRODUCTS[problem.direction], cuts(problem, sides)._asdict()
    kinds = {product.a: _R2C, product.b: _R2C, product.c: _C2R}
    return {name: _plan(c[name], kind) for name, kind in kinds.items()}


def _plan(cut: Cut, kind: int) -> Any:
    """Tiles one behind the other, their spectra interleaved: equal frequencies of all tiles are neighbours."""
    from cupy.cuda import cufft

    height, width = cut.height.side, cut.width.side
    tiles = ((height, width), 1, cut.points)
    spectra = ((height, width // 2 + 1), cut.planes, 1)
    layout = (*tiles, *spectra) if kind == _R2C else (*spectra, *tiles)
    return cufft.PlanNd((height, width), *layout, kind, cut.planes, "C", 1, None)


def _work_bytes(problem: ConvProblem, sides: Sides) -> int:
    return sum(int(plan.work_area.mem.size) for plan in _plans(problem, sides).values())


@lru_cache(maxsize=8)
def _movers(source: str) -> Any:
    import cupy

    return cupy.RawModule(code=source)


def _convolve(problem: ConvProblem, x: ConvOperands, sides: Sides) -> Launch:
    """Cut and transform both inputs, multiply, transform back, paste; one buffer holds the tiles of each in turn."""
    x.chose(tile="x".join(map(str, sides)))
    c, product, plans = cuts(problem, sides), _PRODUCTS[problem.direction], _plans(problem, sides)
    a, b, result = (getattr(c, name) for name in product[:3])
    tiles = x.scratch((max(cut.planes for cut in c) * c.x.points,), "f32")
    spectra = {cut.name: x.scratch((cut.frequencies, cut.planes, 2), "f32") for cut in c}
    movers = _movers(cut_source(a) + cut_source(b) + paste_source(result))
    multiply = _product(problem, x, c, spectra)
    cutters = [(_mover(movers, f"cut_{cut.name}", cut.planes * cut.points), cut.name) for cut in (a, b)]
    paste = _mover(movers, f"paste_{result.name}", result.elements)
    sources, target = {cut.name: getattr(x, cut.name) for cut in (a, b)}, getattr(x, result.name)

    def launch() -> None:
        for cut, name in cutters:
            cut(sources[name], tiles)
            plans[name].fft(tiles, spectra[name], _FORWARD)
        multiply()
        plans[result.name].fft(spectra[result.name], tiles, _INVERSE)
        paste(tiles, target)

    return launch


def _mover(module: Any, name: str, count: int) -> Any:
    function, grid = module.get_function(name), (blocks(count),)
    return lambda source, target: function(grid, (THREADS,), (source, target))


def _product(problem: ConvProblem, x: ConvOperands, c: Cuts, spectra: dict[str, Any]) -> Launch:
    """At each frequency and group. cuFFT does not divide by the number of points, so the product does."""
    product = _PRODUCTS[problem.direction]
    a, b, result = (getattr(c, name) for name in product[:3])
    contracted = a.rows if product.op_a == "N" else a.ld
    size = (result.ld, result.rows, contracted)
    matrices = [
        _cublas.Spectrum(int(spectra[cut.name].data.ptr), op, cut.ld, cut.rows * cut.ld)
        for cut, op in ((a, product.op_a), (b, product.op_b), (result, "N"))
    ]
    batch = result.frequencies * problem.groups
    return _cublas.cgemm3m(SimpleNamespace(stream=x.stream), size, batch, 1 / result.points, *matrices)


def _fits_ints(problem: ConvProblem, sides: Sides) -> str | None:
    """Why a count does not fit the C ints of cuFFT, of cuBLAS or of a grid's blocks, or None."""
    c = cuts(problem, sides)
    counts = {"transforms": max(cut.planes for cut in c), "products": c.x.frequencies * problem.groups}
    counts["blocks"] = max(blocks(max(cut.elements, cut.planes * cut.points)) for cut in c)
    for what, count in counts.items():
        if count > INT_LIMIT:
            return f"{count} {what}, expected at most {INT_LIMIT}"
    return None


@lru_cache
def _version(problem: ConvProblem) -> str:
    from cupy.cuda import cufft

    version = cufft.getVersion()
    return f"cufft {version // 1000}.{version // 100 % 10}.{version % 100}; {_cublas.described(problem)}"


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
    executed=lambda p: executed(cuts(p, whole(p))),
    library_scratch=lambda p: _work_bytes(p, whole(p)) + _cublas.WORKSPACE_BYTES,
    **_CUFFT,
)
def full(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of whole images and of filters as large by cuFFT, cuBLAS CGEMM3M for each frequency."""
    return _convolve(problem, x, whole(problem))


@kernel(
    "conv",
    supports=lambda p: _fits_ints(p, cheapest(p)),
    executed=lambda p: executed(cuts(p, cheapest(p))),
    library_scratch=lambda p: _work_bytes(p, cheapest(p)) + _cublas.WORKSPACE_BYTES,
    **_CUFFT,
)
def tiled(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFTs of overlapping tiles by cuFFT, cuBLAS CGEMM3M for each frequency; the tile's sides chosen by a model."""
    return _convolve(problem, x, cheapest(problem))
