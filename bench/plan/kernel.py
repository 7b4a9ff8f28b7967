"""The classes of kernels: name, problems that a kernel takes, default tile (`tile_for`), set-up and launch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from numbers import Real
from typing import Any, Self, TypeVar

from kernelmark.bench.plan.dtypes import NATIVE, split_dtype
from kernelmark.bench.plan.errors import UsageError, unknown
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import (
    Prefer,
    Rule,
    Tile,
    Tunable,
    nearest,
    parse_tile,
    tile_on,
    tile_text,
    values_on,
    walk,
)

__all__ = ["Prefer", "Tile"]

Launch = Callable[[], object]

#: The providers of vendors' kernels; of equally fast kernels, the first provider's is the baseline.
VENDORS = ("cublas", "cublaslt", "cudnn", "cudnn_frontend", "cufft")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A contender: its name, the problems that it takes, and how it is set up.

    domain: by axis of the problem, the accepted values (`dtypes=("f32",)` is `{"dtype": ("f32",)}`). supports: returns
    why it cannot take a problem inside its domain, or None. modules: the modules that must be importable. threaded:
    whether it uses more than one CPU thread. order: `F` for kernels that interpret the buffers as column-major
    matrices. library_scratch: bytes that the library allocates internally, as a function of the problem.
    library_version: a function of the problem that returns a text to add to the modules' versions in the column
    `versions`; it is called after set-up. executed: the floating-point operations of its algorithm, as a function of
    the problem (and of the tile if it has tunables), if they differ from the operation's nominal number (Winograd,
    FFT). wire: bytes that it sends between workers, as a function of the problem, if the operation has workers.
    synchronises: its calls wait for the device, so the stream must not be held while they are queued. host_memory: the
    kind of host memory of its operands, one in HOST_MEMORY; "" is memory as NumPy allocates it. spread: its operands
    lie on several GPUs, given by `Operand.gpus`. on_request: it contends only if a glob of the suite or of the user
    selects it. module: the Python module that declares it; set by the decorators.

    tunables: the values that each tunable may have, or a function that computes its value for a device. Set-up reads
    the tile as `x.tile`; a plan of CUDA launches gets it as an argument. valid: returns why a tile cannot take a
    problem on a device, or None; it may read only the tile's attributes. prefer: the default tiles; without it, the
    first valid tile. tile: fixed values of tunables, which the kernel's id contains; `with_tile` sets them.
    """

    op: str
    name: str
    provider: str
    device: str
    label: str
    setup: Callable[[Any, Any], Launch] | None = None
    domain: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    numerics: str | Mapping[str, str] | None = None
    supports: Callable[[Any], str | None] | None = None
    modules: tuple[str, ...] = ()
    threaded: bool = False
    order: str = "C"
    library_scratch: Callable[[Any], int] | None = None
    library_version: Callable[[Any], str] | None = None
    executed: Callable[..., int] | None = None
    wire: Callable[[Any], int] | None = None
    synchronises: bool = False
    host_memory: str = ""
    spread: bool = False
    on_request: bool = False
    module: str = ""
    tunables: Mapping[str, tuple[Tunable, ...]] = field(default_factory=dict)
    valid: Rule | None = None
    prefer: Prefer | None = None
    tile: Mapping[str, int] = field(default_factory=dict)

    @property
    def base_id(self) -> str:
        """Return `gemm/numpy.matmul`: operation, provider, name."""
        return f"{self.op}/{self.provider}.{self.name}"

    @property
    def id(self) -> str:
        """Return `gemm/numpy.matmul`, or with a fixed tile `gemm/cuda.async@BM=128,BN=64`."""
        return f"{self.base_id}@{tile_text(self.tile)}" if self.tile else self.base_id

    @property
    def is_ours(self) -> bool:
        """Return whether the kernel comes with kernelmark, not from a plug-in."""
        return self.module.startswith("kernelmark.kernels.")

    def numerics_for(self, problem: Problem) -> str:
        """Return the numerics in which this kernel computes `problem`."""
        storage = split_dtype(problem.dtype)[0]
        if isinstance(self.numerics, str):
            return self.numerics
        return (self.numerics or NATIVE)[storage]

    def outside(self, problem: Problem) -> str | None:
        """Return why `problem` is outside the kernel's declared domain, or None."""
        if problem.op != self.op:
            return f"{self.id} is a kernel of {self.op}, and {problem.id} is a problem of {problem.op}"
        for axis, values in self.domain.items():
            value = getattr(problem, axis)
            if value not in values:
                value = value if isinstance(value, str) else f"{axis} {value:g}"
                return f"{self.id} has no {value} path; it has {', '.join(map(str, values))}"
        return None

    def refuses(self, problem: Problem, device: DeviceLimits = H100) -> str | None:
        """Return why the kernel cannot take `problem` on the device, or None."""
        if reason := self.outside(problem) or (self.supports(problem) if self.supports else None):
            return reason
        if self.tile_for(problem, device) is not None:
            return None
        complaint = f"is not valid for {problem.id}" if self.tile else "no tile is valid"
        return f"{self.id}: {complaint}: {self.unwanted(problem, next(self.tiles(device)), device)}"

    def executed_flop(self, problem: Problem, device: DeviceLimits = H100) -> int:
        """Return how many floating-point operations the kernel, with its tile, executes for `problem` on the device.

        A kernel that declares no number executes the nominal number or, if larger, the number that its numerics
        require. Raises ValueError if the kernel declares fewer operations than its numerics require.
        """
        numerics = self.numerics_for(problem)
        least = problem.least_flop(numerics)
        if self.executed is None:
            return max(problem.flop, least)
        tile = (self.tile_for(problem, device),) if self.tunables else ()
        declared: Any = self.executed(problem, *tile)
        if not issubclass(type(declared), Real):
            raise ValueError(f"declares that it executes {declared!r}, expected a number of operations")
        if declared < least:
            raise ValueError(f"declares that it executes {declared} flop, expected at least {least} for {numerics}")
        return int(declared)

    def wire_bytes_for(self, problem: Problem) -> int | None:
        """Return the declared number of bytes sent between workers, or None. Raises ValueError if it is too small."""
        if self.wire is None:
            return None
        numerics, declared = self.numerics_for(problem), self.wire(problem)
        if declared < (least := problem.least_wire_bytes(numerics)):
            raise ValueError(f"declares {declared} bytes on the wire, expected at least {least} for {numerics}")
        return declared

    def launch(self, problem: Problem, x: Any) -> Launch:
        """Set the kernel up on the operands `x`, with its tile for the problem as `x.tile`."""
        assert self.setup is not None
        x.tile = self.tile_for(problem)
        return self.setup(problem, x)

    def with_tile(self, values: Mapping[str, int]) -> Self:
        """Return the kernel with these tunables fixed. Raises UsageError for a name or value that the kernel lacks."""
        return replace(self, tile=_checked_tile(self, values))

    def values(self, device: DeviceLimits = H100) -> dict[str, tuple[int, ...]]:
        """Return the values of each tunable on the device."""
        pinned = {name: (value,) for name, value in self.tile.items()}
        return {name: values_on(device, values) for name, values in self.tunables.items()} | pinned

    def tiles(self, device: DeviceLimits = H100) -> Iterator[Tile]:
        """Yield the tiles that a run may use by default: `prefer` in order of preference, or else every tile."""
        if self.prefer is None:
            values = self.values(device)
            return (Tile(**dict(zip(values, taken, strict=True))) for taken in product(*values.values()))
        wanted = (tile_on(device, tile) for tile in self.prefer.tiles)
        return iter(nearest(wanted, self.tile)) if self.tile else wanted

    def unfit(self, problem: Problem, tile: Tile, device: DeviceLimits = H100) -> str | None:
        """Return why `tile` cannot take `problem` on the device, or None."""
        return self.valid(problem, tile, device) if self.valid else None

    def unwanted(self, problem: Problem, tile: Tile, device: DeviceLimits = H100) -> str | None:
        """Return why `tile` cannot take `problem`, or why `prefer` skips the tile, or None."""
        if reason := self.unfit(problem, tile, device):
            return reason
        unless = self.prefer.unless if self.prefer and not self.tile else None
        return unless(problem, tile, device) if unless else None

    def tile_for(self, problem: Problem, device: DeviceLimits = H100) -> Tile | None:
        """Return the tile that a run uses for `problem` on the device, or None."""
        if self.prefer is not None:
            return next((t for t in self.tiles(device) if self.unwanted(problem, t, device) is None), None)
        tiles = walk(self.values(device), lambda tile: self.unfit(problem, tile, device))
        return next((tile for tile in tiles if isinstance(tile, Tile)), None)

    def default_tile(self, problem: Problem, device: DeviceLimits = H100) -> Tile:
        """Return the tile that a run uses for a problem that the kernel takes on the device."""
        tile = self.tile_for(problem, device)
        assert tile is not None, self.refuses(problem, device)
        return tile


def _checked_tile(kernel: Kernel, values: Mapping[str, int]) -> dict[str, int]:
    """Return the values in the order of the kernel's tunables. Raises UsageError for an unknown tunable or value.

    A tunable whose value depends on the device accepts any number, since the device may not be here.
    """
    subject = f"{kernel.base_id}@{tile_text(values)}"
    if not kernel.tunables:
        raise UsageError(f"{subject}: {kernel.base_id} has no tunables; leave the tile out")
    for name, value in values.items():
        if name not in kernel.tunables:
            raise UsageError(f"{subject}: {name} {unknown(name, kernel.tunables)}")
        known = kernel.tunables[name]
        if value not in known and not any(map(callable, known)):
            raise UsageError(f"{subject}: {name} is {value}, expected one of {', '.join(map(str, known))}")
    return {name: values[name] for name in kernel.tunables if name in values}


K = TypeVar("K", bound=Kernel)


def tiled(kernel: K, globs: Sequence[str]) -> Iterator[K]:
    """Yield the kernel as globs select it: as declared, and with each tile that a glob names after an @.

    Raises UsageError if a matched kernel has no such tile.
    """
    if not globs:
        yield kernel
        return
    excluded = [glob for glob in globs if glob[:1] == "!"]
    pinning = [glob for glob in globs if "@" in glob and glob not in excluded]
    plain = [glob for glob in globs if glob not in pinning]
    if (kernel.tile or plain != excluded or not pinning) and matches(kernel.id, globs if kernel.tile else plain):
        yield kernel
    if kernel.tile:
        return
    parts = (glob.partition("@") for glob in pinning)
    tiles = [parse_tile(tile, f"{head}@{tile}") for head, _, tile in parts if fnmatchcase(kernel.base_id, head)]
    kernels = {pinned.id: pinned for pinned in map(kernel.with_tile, tiles)}
    yield from (pinned for pinned in kernels.values() if matches(pinned.id, excluded))


@dataclass(frozen=True)
class TensorMap:
    """A TMA descriptor argument: the operand that it describes, and the box that one copy moves.

    The tensor has three dimensions: x is the column in a row as stored, y the row, z the index in a batch (size 1
    without a batch). box: rows and columns, at most 256 each. swizzle: `none`, `32B`, `64B` or `128B`; with a swizzle,
    a row of the box has at most this many bytes. tf32: the copy rounds FP32 elements to TF32. rows: the adjacent axes
    of the operand that form y; all other axes before the last form z.
    """

    operand: str
    box: tuple[int, int]
    swizzle: str = "none"
    tf32: bool = False
    rows: tuple[int, ...] = (-2,)


@dataclass(frozen=True)
class Im2colMap:
    """A TMA descriptor argument for im2col copies of pixels from images with channels last.

    operand: n images of h x w pixels with c channels. box: pixels and channels of a copy. The first tap of a filter
    visits each image row by row in steps of `stride`, from `lower` to `upper`. Both are (row, column); `upper` is
    counted from the image's last row and column. A copy takes its pixels in this order, all offset by its tap. Pixels
    outside the image are zeros. swizzle: as in TensorMap.
    """

    operand: str
    box: tuple[int, int]
    lower: tuple[int, int]
    upper: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    swizzle: str = "none"

    def refusal(self, itemsize: int) -> str | None:
        """Return the limit of the TMA that this map exceeds for images with elements of `itemsize` bytes, or None.

        Source: cuTensorMapEncodeIm2col in the CUDA driver API, for tensors of rank 4.
        """
        pixels, channels = self.box
        row = channels * itemsize
        for what, value, least, most in (
            *(("corner", value, -128, 127) for value in (*self.lower, *self.upper)),
            *(("stride", value, 1, 8) for value in self.stride),
            ("copy's number of pixels", pixels, 1, 1024),
            ("copy's number of channels", channels, 1, 256),
            ("copy's row in bytes", row, 16, row if self.swizzle == "none" else int(self.swizzle.removesuffix("B"))),
        ):
            if not least <= value <= most:
                return f"a {what} is {value}, expected {least} to {most}, the limits of the TMA"
        return f"a row of a copy has {row} bytes, expected a multiple of 16 for the TMA" if row % 16 else None


@dataclass(frozen=True)
class Scratch:
    """A scratch buffer argument, allocated before timing; equal names refer to the same buffer."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class KernelCall:
    """One launch of a CUDA kernel.

    args: operand names, integers (C `int`), floats (C `float`), NumPy scalars (passed in their own type; structured
    scalars as structs by value), Scratch, TensorMap, Im2colMap. entry: the name expression, if it differs from the
    declaration's. grid: in blocks; block: in threads. cluster: the number of blocks along the grid's x that share a
    cluster; it divides the grid's width.
    """

    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    args: tuple[Any, ...]
    shared_bytes: int = 0
    entry: str | None = None
    cluster: int = 1


#: The prefix of the module names of --plugin files.
PLUGIN_MODULE = "kernelmark_plugin_"


@dataclass(frozen=True, kw_only=True)
class CudaKernel(Kernel):
    """A hand-written kernel: a .cu file, an entry in it, and a plan of launches.

    source: path below `cuda/`, or an absolute path. entry: C++ name expression in which `{BM}` is a tunable and
    `{op_a}` an attribute of the problem. min_arch: the lowest compute capability, times ten. archs: the only
    architectures that can run the kernel; empty if `min_arch` decides. alignment: of every operand's address, in bytes;
    16 allows the widest access. emulated: None if the tests emulate the kernel; otherwise the reason why they cannot.
    spills: the reason why the kernel may spill registers or use stack; without a reason the tests forbid that.
    """

    source: str
    entry: str
    plan: Callable[[Any, Any, Any], list[KernelCall]]
    min_arch: int = 75
    archs: tuple[str, ...] = ()
    alignment: int = 16
    cooperative: bool = False
    emulated: str | None = None
    spills: str = ""

    def runs_on(self, arch: str) -> bool:
        """Return whether `arch` (`sm_90a`) can run the kernel."""
        return arch in self.archs if self.archs else int(arch.strip("sm_af")) >= self.min_arch

    def unfit(self, problem: Problem, tile: Tile, device: DeviceLimits = H100) -> str | None:
        """Return why `tile` cannot take `problem` on the device, or None.

        Only dynamic shared memory is checked. Static memory is known after compilation and checked by the launcher.
        """
        if reason := super().unfit(problem, tile, device):
            return reason
        wanted = max((call.shared_bytes for call in self.plan(problem, tile, device)), default=0)
        if wanted <= device.block_shared_bytes:
            return None
        return f"a block needs {wanted} bytes of shared memory, expected at most {device.block_shared_bytes}"

    def calls(self, problem: Problem, tile: Tile, device: DeviceLimits = H100) -> list[tuple[str, KernelCall]]:
        """Return the launches for `problem` on the device, each with its complete name expression."""
        names = _Names(problem, tile)
        return [((call.entry or self.entry).format_map(names), call) for call in self.plan(problem, tile, device)]


class _Names(dict[str, Any]):
    """The names that an entry may contain: tunables, then attributes of the problem."""

    def __init__(self, problem: Problem, tile: Tile) -> None:
        super().__init__(vars(tile))
        self._problem = problem

    def __missing__(self, name: str) -> Any:
        return getattr(self._problem, name)
