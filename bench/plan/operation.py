"""The base of operations: a problem class with an id, operands, a float64 reference and a tolerance."""

import itertools
import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import DTYPES, Array, split_dtype
from kernelmark.bench.plan.errors import UsageError, meant
from kernelmark.bench.plan.numbers import WHOLE
from kernelmark.bench.plan.verdict import Verdict

#: Sizes of typical problems, and the difference between a problem's sizes for kernels that do not take equal sizes.
TYPICAL_SIZES, APART = (1024, 512, 64, 7, 3, 1), 24
#: The keys of a suite's sweep other than axes.
SWEEP_KEYS = {"op", "axes", "points", "count", "kernels", "network", "part", "along", "together", "max_time"}
#: The bytes of a cache line.
_LINE_BYTES = 64
#: The default of `Operand.specials`, the largest magnitude of special values.
SPECIALS = 1e3
#: How the operands of timed calls can be drawn (bench/measure/draw.py); the first is the default. An operation whose
#: time depends on it has an axis `distribution` of this type.
Distribution = Literal["uniform", "normal", "zeros", "ints"]
UNIFORM, *OTHER_DISTRIBUTIONS = typing.get_args(Distribution)
Dim = typing.Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Arrays = Mapping[str, Array]
#: The index of each input's changed elements, and their previous values.
Changes = Mapping[str, tuple[tuple[Array, ...], Array]]
#: From the outputs, the current inputs, their changes and the numerics, returns why outputs are wrong, or None.
Checksums = Callable[[Arrays, Arrays, Changes, str], str | None]


class Operand(msgspec.Struct, frozen=True):
    """One array of a problem: row-major `shape`, each row followed by `pad` unused elements.

    An `in` is read, an `out` is poisoned before every run, an `inout` is restored before every sample. in_host: the
    operand lies in host memory, whatever the kernel's device. gpus: for kernels that are `spread`, the number of the
    operand's GPU, or one number for each row. specials: the largest magnitude of the few drawn values that are not
    uniform in [-1, 1] (bench/measure/draw.py); 0 if there are none. others: the `specials` of every third draw; 0 if
    all draws have the same. Large values expose kernels that clip, but hide arithmetic that is worse than declared.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout"]
    pad: int = 0
    in_host: bool = False
    gpus: tuple[int, ...] = (0,)
    specials: float = 0.0
    others: float = 0.0

    def __post_init__(self) -> None:
        for name in ("specials", "others"):
            if not ((value := getattr(self, name)) == 0 or value >= 1):
                raise ValueError(f"{name} of operand {self.name} is {value:g}, expected 0 or at least 1")

    @property
    def ld(self) -> int:
        """Return the leading dimension in elements: the distance from one row to the next."""
        return self.shape[-1] + self.pad

    @property
    def elements(self) -> int:
        """Return the number of elements in the buffer, including padding."""
        return math.prod(self.shape[:-1]) * self.ld

    @property
    def nbytes(self) -> int:
        return self.elements * DTYPES[self.dtype].itemsize


class EmulatedSizes(NamedTuple):
    """Sizes and options of the problems on which kernels are emulated, if the usual sizes do not suit an operation.

    first: sizes for each variant of the axes; these replace the usual sizes. more: sizes to use next if a kernel takes
    too few of `first`; the usual ones if empty. last: additional sizes. An entry may also fix an axis like `place`;
    then it is used only for variants with this value. long_from: a problem is long if one of its sizes is larger. deep:
    the dimension that is summed over, by direction; each variant gets one problem that is long in this dimension.
    """

    first: Sequence[Mapping[str, Any]] = ()
    more: Sequence[Mapping[str, Any]] = ()
    last: Sequence[Mapping[str, Any]] = ()
    long_from: int = 512
    deep: Mapping[str, str] = MappingProxyType({})


class Features(NamedTuple):
    """The features by which a selector chooses between kernels, if they are not just the operation's sizes.

    inputs: the numbers that a caller knows. expressions: formulas of the inputs, in syntax that Python and C share; a
    tree compares their values with thresholds. slopes: the expressions whose logarithms a formula uses. held: axes that
    are no inputs because other inputs express them (`stride_h` and `stride_w` express `stride`). libraries: kernels
    that use a library's default algorithm; the first of them that was measured represents the library.
    """

    inputs: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    slopes: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the problem classes: sizes, storage type and options of one operation.

    A subclass declares its fields (the axes of suites), which of them are `sizes` and which `suffixes` may follow the
    sizes in an id, and the methods below. assumed: by axis, the values that a kernel takes if it declares none for the
    axis; for an axis without an entry, all values. uses_host: the operation uses the host's memory or links even for
    kernels on a GPU. is_ceiling: kernelmark's kernels for it are microbenchmarks, which bound other rows.
    """

    op: ClassVar[str] = ""
    sizes: ClassVar[tuple[str, ...]] = ()
    suffixes: ClassVar[tuple[str, ...]] = ()
    assumed: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    uses_host: ClassVar[bool] = False
    is_ceiling: ClassVar[bool] = False
    features: ClassVar[Features] = Features()

    @property
    def distribution(self) -> str:
        """Return the distribution of the operands of timed calls; an operation may have an axis of this name."""
        return str(UNIFORM)

    @property
    def id(self) -> str:
        """Return `gemm/m1024n2048k26752/f32/NT`, then options that are not defaults, the distribution last."""
        sizes = "".join(f"{name}{getattr(self, name)}" for name in self.sizes)
        last = [self.distribution] if self.distribution != UNIFORM else []
        try:
            return "/".join([self.op, sizes + self.suffix(), self.dtype, *self.words(), *last])
        except TypeError as error:
            raise UsageError(f"{self.op}: suffix() and words() of its problems must return texts: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the problem named by the part of an id after `op/`. Raises UsageError."""
        subject = f"{cls.op}/{text}"
        sizes, _, rest = text.partition("/")
        dtype, *words = rest.split("/")
        match = cls._sizes().fullmatch(sizes)
        if not match:
            expected = "".join([*(f"{name}<int>" for name in cls.sizes), *(f"[{name}<int>]" for name in cls.suffixes)])
            raise UsageError(f"{subject}: sizes are {sizes!r}, expected {expected}, without leading zeros")
        last = {}
        if words and words[-1] in OTHER_DISTRIBUTIONS and "distribution" in cls.axes():
            last["distribution"] = words.pop()
        try:
            parts = {name: part for name, part in match.groupdict().items() if part is not None}
            values: dict[str, Any] = {name: part if name in cls.suffixes else int(part) for name, part in parts.items()}
            values |= {"dtype": dtype, **cls.parse_words(words), **last}
        except ValueError as error:
            raise UsageError(f"{subject}: {error}") from None
        except TypeError as error:
            raise UsageError(f"{cls.op}: parse_words is expected to return a dict of fields: {error}") from None
        return cls.make(values, subject)

    @classmethod
    @cache
    def _sizes(cls) -> re.Pattern[str]:
        """Return the pattern of the sizes in an id; cached, since every row parses an id."""
        pattern = "".join(rf"{name}(?P<{name}>{WHOLE})" for name in cls.sizes)
        return re.compile(pattern + "".join(rf"(?:{name}(?P<{name}>[0-9x-]+))?" for name in cls.suffixes))

    @classmethod
    def make(cls, values: Mapping[str, Any], subject: str) -> Self:
        """Return the problem with these field values, after checks. Raises UsageError that begins with `subject`."""
        for name, value in values.items():
            if (complaint := cls.complaint(name, value)) is not None:
                raise UsageError(f"{subject}: {complaint}")
        if missing := [name for name in cls.required() if name not in values]:
            raise UsageError(f"{subject}: {missing[0]} is missing; {cls.op} needs {', '.join(cls.axes())}")
        try:
            problem = msgspec.convert(values, cls)
        except ValueError as error:
            raise UsageError(f"{subject}: {error}") from None
        if not isinstance(problem.id, str):
            raise UsageError(f"{cls.op}: the id of its problems is a {type(problem.id).__name__}, expected a string")
        return problem

    @classmethod
    @cache
    def axes(cls) -> dict[str, Any]:
        """Return the names and types of the problem's fields, which suites call axes."""
        return {field.name: field.type for field in msgspec.structs.fields(cls)}

    @classmethod
    @cache
    def required(cls) -> tuple[str, ...]:
        """Return the names of the fields without a default."""
        return tuple(field.name for field in msgspec.structs.fields(cls) if field.required)

    @classmethod
    def complaint(cls, axis: str, value: Any) -> str | None:
        """Return why `value` is invalid for `axis`, or None."""
        axes = cls.axes()
        if axis not in axes:
            return f"{axis} is not an axis of {cls.op}; expected one of {', '.join(axes)}"
        kind = axes[axis]
        try:
            msgspec.convert(value, kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter for bytes that are not UTF-8
            choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
            named = ", ".join(choices) + meant(str(value), choices)
            expected = f"one of {named}" if choices else str(error).removeprefix("Expected ")
            return f"{axis} is {value!r}, expected {expected}"
        return None

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        """Yield typical sizes (and other axes) of the problems for which `inspect` shows kernels, the largest first.

        By default all sizes are equal, or slightly different for kernels that require that.
        """
        for first, apart in itertools.product(TYPICAL_SIZES, (0, APART)):
            yield {name: first + i * apart for i, name in enumerate(cls.sizes)}

    @property
    def baselines(self) -> tuple[str, ...]:
        """Return the ids of kernels that may be the baseline; the first that contends is the baseline."""
        return ()

    @property
    def row_lengths(self) -> tuple[int, ...]:
        """Return the lengths that must be multiples of a vectorised kernel's vector width; by default all sizes."""
        return tuple(getattr(self, name) for name in self.sizes)

    @classmethod
    def emulated_sizes(cls) -> EmulatedSizes:
        """Return the sizes of the problems on which kernels are emulated."""
        return EmulatedSizes()

    def dims(self) -> dict[str, int | float | str]:
        """Return the problem's columns of the CSV: every field except the storage type and the layout."""
        return {name: getattr(self, name) for name in self.axes() if name not in ("dtype", "layout")}

    @property
    def footprint_bytes(self) -> int:
        """Return the bytes of one set of operands."""
        return sum(operand.nbytes for operand in self.operands())

    dtype: str

    @property
    def ctype(self) -> str:
        """Return the C++ name of the storage type of the inputs."""
        return DTYPES[split_dtype(self.dtype)[0]].ctype

    def suffix(self) -> str:
        """Return the options that follow the sizes in the id; defaults are left out."""
        return ""

    def words(self) -> list[str]:
        """Return the parts that follow the storage type in the id; defaults are left out."""
        return []

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        """Return the fields that the words of an id set; this reverses `words()`. Raises ValueError."""
        if words:
            raise ValueError(f"{words[0]!r} is not a part of a {cls.op} id")
        return {}

    def operands(self) -> tuple[Operand, ...]:
        """Return the arrays of the problem, in the order in which their values are drawn."""
        raise NotImplementedError

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Any:
        """Return the float64 reference for `check`, computed from the inputs (and inouts before the run)."""
        raise NotImplementedError

    def check(self, outputs: Arrays, reference: Any, numerics: str) -> Verdict:
        """Compare the outputs of a run with `reference`; NaN never passes."""
        raise NotImplementedError

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums | None:
        """Return a cheap check of whole outputs, about as fast as reading them, or None if there is none.

        The check is used for many timed calls; a few elements of the inputs change between calls.
        """
        return None

    @property
    def flop(self) -> int:
        """Return the nominal number of floating-point operations; 0 if the operation only moves data."""
        raise NotImplementedError

    def link(self, footprint_bytes: int) -> str:
        """Return the id of a transfer of `footprint_bytes` over the link that the data crosses; "" without a link."""
        return ""

    @property
    def bus_bytes(self) -> float | None:
        """Return the fewest bytes that must cross a bus between workers, or None without workers."""
        return None

    def least_wire_bytes(self, numerics: str) -> int:
        """Return the fewest bytes that a kernel with these numerics must send between workers."""
        return 0

    def least_flop(self, numerics: str) -> int:
        """Return the fewest floating-point operations that an algorithm with these numerics needs."""
        return self.flop

    @property
    def touched(self) -> tuple[Operand, ...]:
        """Return the operands that a kernel has to read or write."""
        return self.operands()

    @property
    def touched_bytes(self) -> int:
        """Return the bytes that a call brings into a cache, counting at most one cache line of padding per row."""
        rows = ((operand, DTYPES[operand.dtype].itemsize) for operand in self.touched)
        return sum(
            math.prod(operand.shape[:-1]) * min(operand.ld * size, operand.shape[-1] * size + _LINE_BYTES)
            for operand, size in rows
        )

    @property
    def traffic_bytes(self) -> int:
        """Return the bytes of compulsory traffic: each input read once, each output written once."""
        sizes = [(math.prod(operand.shape) * DTYPES[operand.dtype].itemsize, operand.role) for operand in self.touched]
        return sum(2 * size if role == "inout" else size for size, role in sizes)
