"""Format numbers and names: digits, times, sizes, spreads, ratios, counts, short names."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not imported at run time: `kernelmark list` formats no row
    from kernelmark.bench.record.columns import Result


#: Units of time and their lengths in seconds, the largest first.
UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def decimals(value: float) -> int:
    """Return the number of decimals for three significant digits."""
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0


def digits(value: float | None) -> str:
    """Format a number with three significant digits and no exponent; "" for None, infinity and NaN."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{decimals(value)}f}"


def unit(seconds: float) -> tuple[str, float]:
    """Return the unit to write a time in, and the unit's length in seconds."""
    return next((u for u in UNITS if seconds >= u[1]), UNITS[-1])


def seconds(value: float | None) -> str:
    """Format a time with three significant digits and a prefix: `12.3 us`; "" for None."""
    if value is None:
        return ""
    name, factor = unit(value)
    return f"{digits(value / factor)} {name}"


def size(value: int | None) -> str:
    """Format bytes with a decimal prefix: `219 MB`; "" for None."""
    if not value:
        return ""
    for name, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{digits(value / factor)} {name}"
    return f"{value} B"


def interval(low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    """Format an interval: `[1.2, 1.3]`; "" if an end is None or NaN."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{write(low)}, {write(high)}]"


def rounded(middle: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Format a number and its interval, rounded so that the interval's half-width has at most two significant digits.

    The interval is "" if an end is unknown; the number then has three significant digits.
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return digits(middle), ""
    mantissa, _, exponent = f"{high / 2 - low / 2:e}".partition("e")  # a power of ten may overflow
    wanted = (1 if float(mantissa) < 3.5 else 0) - int(exponent)
    places = max(0, min(wanted, decimals(middle) + 1))
    return f"{middle:.{places}f}", f"[{low:.{places}f}, {high:.{places}f}]"


def time(middle: float | None, low: float | None, high: float | None) -> str:
    """Format a time with its interval: `473 ms [466 ms, 488 ms]`."""
    return f"{seconds(middle)} {interval(low, high, seconds)}".rstrip()


def factor(middle: float, low: float | None = None, high: float | None = None) -> str:
    """Format a ratio with its interval: `1.4x [1.3, 1.5]`; a ratio that rounds to 1 is `1.00x`."""
    text = f"{middle:.3g}"
    return f"{'1.00' if text == '1' else text}x {ends(low, high)}".rstrip()


def ends(low: float | None, high: float | None, places: int = 3) -> str:
    """Format the interval of a ratio: `[1.2, 1.3]`; an end other than 1 gets enough digits to differ from 1."""

    def write(end: float) -> str:
        texts = [f"{end:.{number}g}" for number in range(places, 13)]
        return next((text for text in texts if text != "1"), "1")

    return interval(low, high, write)


def spread(middle: float | None, low: float | None, high: float | None) -> str:
    """Format an interval relative to its middle: `-0.4 +1.2 %`; "" if a part is unknown."""
    if not middle or not interval(low, high, str):
        return ""
    ends = (100 * ((end or 0.0) / middle - 1) for end in (low, high))
    return " ".join(f"{end:+.{1 if abs(end) < 1000 else 0}f}" for end in ends) + " %"


def other_flop(r: "Result") -> int | None:
    """Return the floating-point operations of a row's algorithm if they differ from the nominal ones, or None."""
    nominal = (r.gflop_per_s or 0.0) * 1e9 * (r.time_s_median or 0.0)
    return None if math.isclose(r.executed_flop or nominal, nominal, rel_tol=1e-9) else r.executed_flop


def row_time(r: "Result") -> tuple[float | None, float | None, float | None]:
    """Return the median time of a row and the ends of its interval, in seconds."""
    return r.time_s_median, r.time_s_ci95_low, r.time_s_ci95_high


def flop_unit(rates: Iterable[float | None]) -> tuple[str, float]:
    """Return a common unit for rates given in GFLOP/s, and its value in GFLOP/s: `("TFLOP/s", 1000.0)`."""
    fastest = max((rate or 0.0 for rate in rates), default=0.0)
    return ("TFLOP/s", 1e3) if fastest >= 1e3 else ("GFLOP/s", 1.0)


def flop_rate(gflop_per_s: float) -> str:
    """Format a rate of arithmetic: `12.3 GFLOP/s`, `67.1 TFLOP/s`."""
    name, factor = flop_unit([gflop_per_s])
    return f"{digits(gflop_per_s / factor)} {name}"


def rate(r: "Result") -> str:
    """Format the rate of a row, `12.3 GFLOP/s`, or else its bandwidth; "" if neither is known."""
    if r.gflop_per_s:
        return flop_rate(r.gflop_per_s)
    return f"{digits(r.gbyte_per_s)} GB/s" if r.gbyte_per_s else ""


def count(number: int, noun: str) -> str:
    """Format a count: `1 thread`, `2 threads`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def some(names: Sequence[str], most: int) -> str:
    """List the first names and count the others: `a, b and 3 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def yes_or_no(value: bool) -> str:
    """Return `yes` or `no`, as in CSV."""
    return "yes" if value else "no"


def short(kernel: str) -> str:
    """Return a kernel's id without its operation."""
    return kernel.partition("/")[2] or kernel


#: The length of the longest kernel name that leaves enough room for a figure.
LONG_NAME = 40


def figure_names(kernels: Iterable[str]) -> dict[str, str]:
    """Return the kernels' names for a figure; a long name keeps only tile values that differ between kernels."""
    names = {kernel: short(kernel) for kernel in kernels}
    long = {kernel: name.split("@", 1) for kernel, name in names.items() if len(name) > LONG_NAME and "@" in name}
    for kernel, (base, tile) in long.items():
        alike = set.intersection(*(set(other.split(",")) for stem, other in long.values() if stem == base))
        names[kernel] = f"{base}@{','.join(v for v in tile.split(',') if v not in alike)}"[:LONG_NAME] + "…"
    return names


def operation(name: str) -> str:
    """Return the operation of a kernel's or a problem's id."""
    return name.partition("/")[0]


def percent(share: float) -> str:
    """Format a fraction as a percentage with at least two digits: `1.4 %`, `24 %`, `130 %`."""
    value = 100 * share
    return f"{value:.2g} %" if abs(value) < 10 else f"{value:.0f} %"


def pace(speed: float) -> str:
    """Express a ratio of speeds in words: `1.4 % slower than`, `2.3x as fast as`.

    The percentage before `slower` is the additional time.
    """
    if speed < 1:
        return f"{percent(1 / speed - 1 if speed else math.inf)} slower than"
    return f"{percent(speed - 1)} faster than" if speed < 2 else f"{factor(speed)} as fast as"
