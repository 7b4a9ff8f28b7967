"""Measure the figures that the project promises on this machine: `make bars`; BARS_ARGS="conv merge" selects some.

Prints a line for each promise; the exit status is 1 if one is missed. `--list` only prints the promises.
"""

import argparse
import sys
from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import NamedTuple

import bars_kernels
import bars_runs
import bars_stores
import bars_tuning
from took import Found

HOLDS = {"<": lt, "<=": le, ">=": ge, ">": gt}


class Promise(NamedTuple):
    """A limit on a measured number. name: MEASUREMENT.NUMBER; page: the page of docs/ that quotes the promise."""

    name: str
    words: str
    sign: str
    limit: float
    unit: str = ""
    page: str = ""

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.name}: {self.words} {self.sign} {self.limit:g} {self.unit}".rstrip()


PROMISES = (
    Promise("list.seconds", "kernelmark list", "<=", 0.3, "s"),
    Promise("million.cases", "planned cases of a sweep of 1000 x 1000", ">=", 1e6),
    Promise("million.first", "the first of a million cases", "<=", 0.1, "s"),
    Promise("million.memory", "a million cases", "<", 100, "MB"),
    Promise("durations.missed", "known durations (2.000 ms and others) wrong by 0.5 %", "<=", 0, "", "measurement.md"),
    Promise("loop.bare", "NumPy NT of the founding shape, hot, compared with a bare loop", "<=", 3, "%"),
    Promise("transpose.in_place", "1024x26752 and 2048x26752 in place over imatcopy", ">=", 5.5, "x"),
    Promise("transpose.full_copy", "in place over a full copy and back", ">", 1, "x"),
    Promise("transpose.scratch", "scratch memory in place, relative to the matrix", "<=", 5, "%"),
    Promise("transpose.out_of_place", "speed out of place, relative to the best threaded copy", ">=", 95, "%"),
    Promise("conv.vgg", "VGG conv3_2 over oneDNN", ">=", 1.2, "x", "convolution.md"),
    Promise("conv.seven", "64-64 channels, 224x224, 7x7 over oneDNN", ">=", 2.5, "x", "convolution.md"),
    Promise("conv.large", "16-16 channels, 128x128, 31x31 over oneDNN", ">=", 20, "x", "convolution.md"),
    Promise("conv.depthwise", "144 channels, 56x56, depthwise 3x3 over oneDNN", ">=", 1, "x", "convolution.md"),
    Promise("conv.tiled", "64-64 channels, 7x7: tiled FFTs over FFTs of whole images", ">=", 8, "x", "convolution.md"),
    Promise("first.seconds", "a first call with a cold cache", "<=", 5, "s"),
    Promise("threads.gain", "speedup of a layer of ResNet-50 by a second thread", ">=", 1, "x"),
    Promise("threads.share", "speedup of layers from 50 MFLOP on, over multiply-adds'", ">=", 0.9, "x"),
    Promise("emulator.sgemm", "a tiled SGEMM of 128x128x64 under the checker", "<=", 60, "ms", "emulator.md"),
    Promise("emulator.cold", "sweep of the first kernels and corpus, cold cache", "<=", 180, "s", "emulator.md"),
    Promise("emulator.warm", "sweep of the first kernels and corpus, warm cache", "<=", 60, "s", "emulator.md"),
    Promise("emulator.later", "time that each later kernel adds", "<=", 3, "s", "emulator.md"),
    Promise("judged.cheats", "wrong compressed sums that are called right", "<=", 0, "", "problems.md"),
    Promise("judged.honest", "right aggregations that are called wrong", "<=", 0, "", "problems.md"),
    Promise("sums.host_serial", "host_serial over the memory ceiling of one thread", ">=", 80, "%", "problems.md"),
    Promise("sums.host_parallel", "host_parallel over the memory ceiling of all threads", ">=", 80, "%", "problems.md"),
    Promise("overlap.share", "overlap, relative to the most that the ceilings allow", ">=", 80, "%", "problems.md"),
    Promise("encode.share", "rate of encoding, relative to copyto", ">=", 70, "%", "problems.md"),
    Promise("fake.rows", "rows recorded for 100,000 cases of a no-op", ">=", 100_000),
    Promise("fake.rate", "cases per second: a no-op on a device on which no time passes", ">=", 500),
    Promise("fake.parent", "growth of the parent's memory from 20,000 cases on", "<", 10, "%"),
    Promise("fake.worker", "growth of the worker's memory from 20,000 cases on", "<", 10, "%"),
    Promise("no_ops.run", "run: no-ops per second from start to end", ">=", 300),
    Promise("no_ops.case", "run: a case's overhead", "<=", 5, "ms"),
    Promise("no_ops.verify", "verify: no-ops per second from start to end", ">=", 300),
    Promise("scale.seconds", "show, export, compare: 100,000 rows of five processes", "<=", 5, "s"),
    Promise("scale.memory", "show, export, compare: 1,000,000 rows", "<", 200, "MB"),
    Promise("many.seconds", "show, export, import, crossover, report, trend, load: 200,000 rows", "<=", 10, "s"),
    Promise("many.memory", "show, export, import, crossover, report, trend, load: 200,000 rows", "<", 300, "MB"),
    Promise("report.seconds", "report of 10,000 rows", "<=", 20, "s"),
    Promise("report.memory", "report of 10,000 rows", "<=", 500, "MB"),
    Promise("report.page", "page of 100,000 rows", "<", 20, "MB"),
    Promise("report.filter", "filters of a page of 100,000 rows", "<", 200, "ms"),
    Promise("merge.rate", "rows merged per second, even if none is new", ">=", 20_000, "", "cluster.md"),
    Promise("merge.memory", "merge of 100,000 rows", "<", 200, "MB", "cluster.md"),
    Promise("merge.differ", "cases in which merged shards and a whole run differ", "<=", 0, "", "cluster.md"),
    Promise("executor.gain", "two workers over one on jobs that sleep 50 ms", ">=", 1.6, "x", "cluster.md"),
    Promise("executor.rate", "jobs per second through one parent", ">=", 100, "", "cluster.md"),
    Promise("executor.first", "the first row", "<=", 15, "s", "cluster.md"),
    Promise("executor.lost", "rows lost, stored twice or never stored, with 30 SIGKILLs", "<=", 0, "", "cluster.md"),
    Promise("select.train", "training on 5,000 rows of 8 kernels", "<", 5, "s", "select.md"),
    Promise("select.call", "a choice by the C code of a tree", "<", 100, "ns", "select.md"),
    Promise("replay.found", "speed found with 15 % of the tiles, over the best tile's", ">=", 0.97, "", "tuning.md"),
    Promise("replay.random", "speed found by the default strategy, over random choice's", ">", 1, "x", "tuning.md"),
    Promise("tune.default", "tunings, out of 20, that keep the default of equal tiles", ">=", 19, "", "tuning.md"),
    Promise("tune.planted", "tunings, out of 20, that adopt a tile that is 5 % faster", ">=", 19, "", "tuning.md"),
    Promise("tune.overhead", "time per tile, including verification and measuring", "<=", 20, "ms", "tuning.md"),
    Promise("again.slower", "adopted tiles that are certainly slower when timed again", "<=", 0, "", "tuning.md"),
)
#: The measurements; each yields the numbers of the promises that begin with its name.
MEASURED: dict[str, Callable[[], Found]] = {"list": bars_stores.listing} | {
    measure.__name__: measure
    for measure in (
        bars_stores.million, bars_runs.durations, bars_kernels.loop, bars_kernels.transpose, bars_kernels.conv,
        bars_kernels.first, bars_kernels.threads, bars_runs.emulator, bars_kernels.judged, bars_kernels.sums,
        bars_kernels.overlap, bars_kernels.encode, bars_runs.fake, bars_stores.scale, bars_stores.many,
        bars_runs.no_ops, bars_stores.merge, bars_runs.executor, bars_stores.report, bars_stores.select,
        bars_tuning.replay, bars_tuning.tune, bars_tuning.again,
    )
}  # fmt: skip


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bars", description=__doc__.partition("\n")[0])
    parser.add_argument("group", nargs="*", help=f"what to measure: {', '.join(MEASURED)}; all if left out")
    parser.add_argument("--list", action="store_true", help="print the promises, and measure nothing")
    options = parser.parse_args(words)
    if unknown := set(options.group) - set(MEASURED):
        parser.error(f"{', '.join(sorted(unknown))}: unknown, expected some of {', '.join(MEASURED)}")
    promises = {promise.name: promise for promise in PROMISES if promise.group in (options.group or MEASURED)}
    if options.list:
        for promise in promises.values():
            print(f"{promise}{f' (docs/{promise.page})' * bool(promise.page)}")
        return 0
    missed = 0
    for group in dict.fromkeys(promise.group for promise in promises.values()):
        for name, value, text in MEASURED[group]():
            promise = promises.pop(name)
            holds = HOLDS[promise.sign](value, promise.limit)  # false for NaN, the value of a failed measurement
            missed += not holds
            line = f"{promise}: {value:.4g}{f' ({text})' * bool(text)}"
            print(f"{'holds ' if holds else 'MISSED'} {line}", flush=True)
    for promise in promises.values():
        print(f"MISSED {promise}: not measured")
    return 1 if missed or promises else 0


if __name__ == "__main__":
    sys.exit(main())
