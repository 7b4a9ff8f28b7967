"""Prints what a kernel's own choice of a tile costs, beside other ways to choose, all on shapes that were held out.

`python tools/tile_choice.py [--kernel KERNEL] [--db FILE] [--run RUN]` reads a run of train-fft-tiles, in which the
sides of `conv/pyfftw.tiled` contend as tiles of it, of train-numba-fft-tiles, for `conv/numba.fft_tiled`, or of
train-implicit-tiles, for `conv/cuda.implicit`. Families of shapes are held out, as `kernelmark select` does. For FFT
there is a refitted model besides, which has its seconds from the other families; the last line has those of all
families, for `SECONDS` or `STRAIGHT_SECONDS` in kernels/conv/fft/cpu.py.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import numpy as np
from scipy.optimize import nnls
from tabulate import tabulate

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report.standings import find_run
from kernelmark.bench.tune.select import rows
from kernelmark.bench.tune.select.bootstrap import drawn, share
from kernelmark.bench.tune.select.grown import GROWERS
from kernelmark.bench.tune.select.regret import SELECTOR, folds, held_out, losses
from kernelmark.bench.tune.select.training import LEAST_PROBLEMS, Data, data_of, space_of
from kernelmark.kernels.conv.fft._tiling import cuts
from kernelmark.kernels.conv.fft.cpu import SECONDS, work

#: The kernels whose model is refitted, and the name of its seconds.
FFTS = {"conv/pyfftw.tiled": "SECONDS", "conv/numba.fft_tiled": "STRAIGHT_SECONDS"}
SUITES = {
    "conv/pyfftw.tiled": "train-fft-tiles",
    "conv/numba.fft_tiled": "train-numba-fft-tiles",
    "conv/cuda.implicit": "train-implicit-tiles",
}
COLUMNS = ("tile by", "of the oracle", "worst", "worst on")


def works_of(data: Data, registry: Registry) -> Array:
    """Return problems x kernels x parts of the work; NaN without a time, and for the kernel that chooses by itself."""
    found = np.full((*data.costs.shape, len(SECONDS)), np.nan)
    for column, name in enumerate(data.times.kernels):
        if name not in FFTS:
            tile = registry.named(name).tile
            for row in np.flatnonzero(~np.isnan(data.times.means[:, column])):
                found[row, column] = work(cuts(data.times.problems[row], (tile["HEIGHT"], tile["WIDTH"])))
    return found


def fit(works: Array, means: Array) -> Array:
    """Return the seconds of each part of the work with the least squares of relative errors, none below 0."""
    has = ~np.isnan(works[..., 0])
    relative = works[has] / np.exp(means[has])[:, None]
    scale = relative.max(axis=0)
    found: Array = nnls(relative / scale, np.ones(len(relative)))[0] / scale
    return found


def refitted(data: Data, works: Array) -> Array:
    """Return the order of sides for each problem by a model that has not seen its family."""
    order = np.empty(data.costs.shape, dtype=np.intp)
    for fold in folds(data.families):
        rest = np.setdiff1d(np.arange(len(works)), fold)
        seconds = works[fold] @ fit(works[rest], data.times.means[rest])
        order[fold] = np.argsort(np.where(np.isnan(seconds), np.inf, seconds), axis=1, kind="stable")
    return order


def text(store: Store, registry: Registry, run: str, kernel: str) -> str:
    """Return the table of ways to choose a tile, and for FFT the seconds that fit all problems. Raises UsageError."""
    times = rows.read(store, registry, [run])
    if kernel not in times.kernels:
        raise UsageError(f"run {run}: has no time of {kernel}; `kernelmark run {SUITES[kernel]}` measures its tiles")
    times = times.only(range(len(times.problems)), [k for k in times.kernels if k.partition("@")[0] == kernel])
    data = data_of(times, space_of(times.problems))
    if len(data.costs) < LEAST_PROBLEMS:
        found = f"has times on {len(data.costs)} problems, expected at least {LEAST_PROBLEMS}"
        raise UsageError(f"run {run}: {found}; `kernelmark run {SUITES[kernel]}` has more")
    own = np.argsort([name != kernel for name in times.kernels], kind="stable")
    orders = {"its own choice": np.tile(own, (len(data.costs), 1))}
    orders |= {f"a selector ({grown})": held_out(data, grown)[SELECTOR] for grown in GROWERS}
    last = ""
    if kernel in FFTS:
        works = works_of(data, registry)
        orders["a refitted model"] = refitted(data, works)
        last = f"\n\n{FFTS[kernel]} = ({', '.join(f'{value:.3g}' for value in fit(works, times.means))})"
    table = []
    for way, _, logs in losses(times, orders):
        own_share = share(-logs, drawn(data.families))
        worst = int(np.nanargmax(logs))
        interval = f"{own_share.mean:.3f} [{own_share.low:.3f}, {own_share.high:.3f}]"
        table.append((way, interval, f"{math.exp(-logs[worst]):.2f}", times.problems[worst].id))
    families = len(set(data.families.tolist()))
    head = f"{run}: {len(data.costs)} problems of {families} families, processes: {times.processes}"
    return f"{head}\n\n{tabulate(table, COLUMNS, disable_numparse=True)}{last}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with one line, as `kernelmark` does."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return 2, after one line, where there is nothing to make it of."""
    parser = _Parser(prog="tile_choice", description="Print what a kernel's own choice of a tile costs.")
    first = next(iter(SUITES))
    parser.add_argument("--kernel", choices=SUITES, default=first, help=f"whose tiles; {first} if left out")
    parser.add_argument("--db", type=Path, help="store that holds the run; kernelmark's own if left out")
    parser.add_argument("--run", help="id or name of the run; the latest with times of the kernel's suite if left out")
    asked = parser.parse_args(words)
    try:
        registry = discover()
        with closing(Store(asked.db or default_store(), create=False)) as store:
            run = find_run(find_suite(SUITES[asked.kernel], registry), store, asked.run)
            print(text(store, registry, run, asked.kernel))
    except UsageError as error:
        print(f"tile_choice: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
