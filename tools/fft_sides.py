"""Prints what the sides of an FFT convolution's tiles cost as its model, a refitted model and trees choose them.

`python tools/fft_sides.py [--db FILE] [--run RUN]` reads a run of the suite train-tiles, in which sides contend as
tiles of `conv/pyfftw.tiled`. Families of shapes are held out, as `kernelmark select` does, and the refitted model has
its seconds from the other families. The last line has those of all families, for `SECONDS` in kernels/conv/fft/cpu.py.
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

from bench.plan.discovery import discover
from bench.plan.dtypes import Array
from bench.plan.errors import UsageError
from bench.plan.registry import Registry
from bench.plan.suites import find_suite
from bench.record.store import Store, default_store
from bench.report.standings import find_run
from bench.tune.select import rows
from bench.tune.select.bootstrap import drawn, share
from bench.tune.select.forest import GROWERS
from bench.tune.select.regret import folds, held_out, losses
from bench.tune.select.training import LEAST_PROBLEMS, Data, data_of, space_of
from kernels.conv.fft._tiling import cuts
from kernels.conv.fft.cpu import SECONDS, work

MODEL = "conv/pyfftw.tiled"


def works_of(data: Data, registry: Registry) -> Array:
    """Return problems x kernels x parts of the work; NaN without a time, and for the kernel that chooses by itself."""
    found = np.full((*data.costs.shape, len(SECONDS)), np.nan)
    for column, name in enumerate(data.times.kernels):
        if name != MODEL:
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


def text(store: Store, registry: Registry, run: str) -> str:
    """Return the table of ways to choose a side, and the seconds that fit all problems. Raises UsageError."""
    times = rows.read(store, registry, [run])
    if MODEL not in times.kernels:
        raise UsageError(f"run {run}: has no time of {MODEL}; `kernelmark run train-tiles` measures it and its tiles")
    data = data_of(times, space_of(times.problems))
    if len(data.costs) < LEAST_PROBLEMS:
        found = f"has times on {len(data.costs)} problems, expected at least {LEAST_PROBLEMS}"
        raise UsageError(f"run {run}: {found}; `kernelmark run train-tiles` has more")
    works = works_of(data, registry)
    orders = {"the model": np.tile(np.argsort([name != MODEL for name in times.kernels]), (len(works), 1))}
    orders |= {"the model, refitted": refitted(data, works)}
    orders |= {f"a tree, {grown}": held_out(data, grown)["selected"] for grown in GROWERS}
    table = []
    for way, _, logs in losses(times, orders):
        own = share(-logs, drawn(data.families))
        worst = int(np.nanargmax(logs))
        interval = f"{own.mean:.3f} [{own.low:.3f}, {own.high:.3f}]"
        table.append((way, interval, f"{math.exp(-logs[worst]):.2f}", times.problems[worst].id))
    head = f"{run}: {len(works)} problems of {len(set(data.families.tolist()))} families, {times.processes} processes"
    shown = tabulate(table, ("side by", "of the oracle", "worst", "worst on"), disable_numparse=True)
    return f"{head}\n\n{shown}\n\nSECONDS = ({', '.join(f'{value:.3g}' for value in fit(works, times.means))})"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with one line, as `kernelmark` does."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return 2, after one line, where there is nothing to make it of."""
    parser = _Parser(prog="fft_sides", description="Print what the choice of the sides of an FFT's tiles costs.")
    parser.add_argument("--db", type=Path, help="store that holds the run; kernelmark's own if left out")
    parser.add_argument("--run", help="id or name of the run; the latest with times of train-tiles if left out")
    asked = parser.parse_args(words)
    try:
        registry = discover()
        with closing(Store(asked.db or default_store(), create=False)) as store:
            print(text(store, registry, find_run(find_suite("train-tiles", registry), store, asked.run)))
    except UsageError as error:
        print(f"fft_sides: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
