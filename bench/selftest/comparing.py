"""What `kernelmark compare` finds in runs whose truth is known: the same product twice, and one that was slowed.

Each pair of runs is compared by itself, so that there is one case and nothing to correct for.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from kernelmark.bench.compare.stats import ALPHA, POWER, detectable, welch
from kernelmark.bench.selftest.finding import Finding
from kernelmark.bench.selftest.known import SLOWED

MOST_ALARMS, LEAST_FOUND = 0.1, 0.8
#: What the processes of each run found, in seconds.
Runs = Sequence[Sequence[float]]


def false_alarms(base: Runs, new: Runs) -> Finding:
    """Return how many pairs of runs of the same product are found to differ."""
    alarms = welch(base, new).p < ALPHA
    return Finding(
        f"aa: false alarms of compare, {100 * ALPHA:g} % stated",
        f"{100 * alarms.mean():.0f} % ({alarms.sum()} of {len(alarms)} pairs)",
        f"at most {100 * MOST_ALARMS:g} %",
        bool(alarms.mean() <= MOST_ALARMS),
    )


def planted(base: Runs, new: Runs, slowed: Runs) -> Iterator[Finding]:
    """How often the slowed product of the other run is found to be slower, and what else could just be found."""
    test = welch(base, slowed)
    found = (test.p < ALPHA) & (test.ratio > 1)
    yield Finding(
        f"planted: {100 * (SLOWED - 1):.0f} % slower, found by compare",
        f"{100 * found.mean():.0f} % ({found.sum()} of {len(found)} tries); {100 * np.median(test.ratio - 1):.2f} %",
        f"at least {100 * LEAST_FOUND:g} %",
        bool(found.mean() >= LEAST_FOUND),
    )
    again = welch(base, new)
    smallest = float(np.median(detectable(again.error, again.freedom)))
    name = f"planted: smallest difference that is found in {100 * POWER:.0f} % of tries"
    yield Finding(name, f"{100 * smallest:.2g} %", "", None)
