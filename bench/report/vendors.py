"""Hold kernels on a GPU against the vendor's own: cuBLAS, cuDNN, cuFFT, and the driver's copy.

A run that has the CPU's kernels beside has NumPy for its baseline, and one that lists cuDNN's algorithms the first of
them. What a reader asks is how a kernel stands to the best that came with the GPU.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import log
from statistics import mean

from kernelmark.bench.plan.kernel import VENDORS
from kernelmark.bench.record.result import COLUMNS, Result
from kernelmark.bench.report.contest import Contest, Ratio, Setting

_COPY = "copy/cuda.memcpy"
#: Parts of the names of kernels that make several calls: a baseline is one.
_SEVERAL = (".tnn", ".inplace", ".two_step")
_LIKE = 0.01  # of the time: two of the vendors' kernels that differ by less are as fast as each other


def over_vendors(found: Sequence[Contest]) -> list[Contest]:
    """Return contests, those on a GPU with each speedup formed over a vendor's kernel of the same job.

    An operation has one baseline in a setting: the vendors' kernel with the most problems, of these the fastest. A
    contest without it has the next; one without any stays as it is.
    """
    alike: dict[tuple[str, Setting], list[Contest]] = defaultdict(list)
    for c in found:
        if c.setting.device == "cuda":
            alike[c.op, c.setting].append(c)
    ranked = {key: _ranked(own) for key, own in alike.items()}
    return [_over(c, ranked.get((c.op, c.setting), ())) for c in found]


def _ranked(found: Iterable[Contest]) -> list[str]:
    slowdowns: dict[str, list[float]] = defaultdict(list)
    places: dict[str, int] = {}
    for c in found:
        for r in filter(_is_baseline, c.ranked):
            slowdowns[r.kernel].append(log(c.slowdown(r)))
            places[r.kernel] = VENDORS.index(r.provider) if r.provider in VENDORS else -1
    return sorted(slowdowns, key=lambda k: (-len(slowdowns[k]), round(mean(slowdowns[k]) / _LIKE), places[k]))


def _is_baseline(r: Result) -> bool:
    one_call = r.provider in VENDORS and not any(part in r.kernel for part in _SEVERAL)
    return one_call or r.kernel == _COPY


def _over(c: Contest, names: Sequence[str]) -> Contest:
    base = next((row for name in names if (row := c.of(name))), None)
    if base is None or {r.baseline for r in c.ranked} == {base.kernel}:
        return c
    return c._replace(ranked=[_row(c, r, base) for r in c.ranked])


def _row(c: Contest, r: Result, base: Result) -> Result:
    """Return a row with its speedup over the baseline; without one where the two were not measured in turn."""
    ratio = Ratio(1.0) if r is base else c.faster(r, base)
    found = {name: getattr(r, name) for name in COLUMNS} | {"baseline": base.kernel if ratio.in_turn else ""}
    median, low, high = ratio[:3] if ratio.in_turn and r is not base else (None, None, None)
    return Result(**found | {"speedup": median, "speedup_ci95_low": low, "speedup_ci95_high": high})
