"""Whether intervals cover what other runs find, and how far headlines lie apart."""

from collections.abc import Sequence
from statistics import mean, median, stdev

from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.selftest.finding import Finding

LEAST_COVERAGE = 0.9
LARGEST_SPREAD = 0.01


def coverage(rows: Sequence[Interval]) -> Finding:
    """The share of runs whose 95 % interval holds the median of all runs' medians."""
    grand = median(row.median for row in rows)
    covering = sum(row.low <= grand <= row.high for row in rows)
    width = median(row.relative_width for row in rows)
    found = f"{100 * covering / len(rows):.0f} % ({covering} of {len(rows)} runs); width {100 * width:.2f} %"
    return Finding(
        "coverage: 95 % intervals, 256^3 SGEMM",
        found,
        f"at least {100 * LEAST_COVERAGE:g} %",
        covering >= LEAST_COVERAGE * len(rows),
    )


def spread(rows: Sequence[Interval]) -> Finding:
    """The coefficient of variation of the headline, `time_s_median`, over the runs."""
    medians = [row.median for row in rows]
    variation = stdev(medians) / mean(medians)
    found = f"CV {100 * variation:.2f} % over {len(rows)} runs"
    bound = f"{100 * LARGEST_SPREAD:g} %"
    return Finding("spread: time_s_median, 256^3 SGEMM", found, bound, variation <= LARGEST_SPREAD)
