"""How much of the shorter of transfer and work an overlapped transfer hides, from rows of one job."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.measure.stats import MIN_SAMPLES, median_interval
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.result import Result
from kernelmark.bench.report import format as fmt
from kernelmark.bench.report.contest import Ratio, is_timed, time_of
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.noise import noise_of

#: The ends of names: copies and works in turn; works on what is there already.
SERIAL, ARRIVED = "serial", "arrived"
COLUMNS = (
    TableColumn("problem"),
    TableColumn("kernel"),
    TableColumn("overlap"),
    TableColumn("time", "right", spare=1),
    TableColumn("in turn", "right", spare=2),
    TableColumn("work alone", "right", spare=3),
)
Found = tuple[Result, dict[str, Any]]


class Overlap(NamedTuple):
    """One overlapped transfer: its row, those of the two that it is set against, and the share that it hides."""

    row: Result
    serial: Result
    arrived: Result
    share: Ratio


def overlaps(store: Reader, results: Iterable[Found]) -> Iterator[Overlap]:
    """Yield the overlap of each transfer with work that was measured in turn with both that it is set against.

    (t_copy + t_work - t) / min(t_copy, t_work), where `serial` takes t_copy + t_work and `arrived` takes t_work.
    """
    rows = [(r, dims) for r, dims in results if r.op == "transfer" and dims.get("work") and is_timed(r) and r.job]
    for _, group in groupby(sorted(rows, key=_key), key=_key):
        own = [r for r, _ in group]
        ends = {name: next((r for r in own if _ending(r) == name), None) for name in (SERIAL, ARRIVED)}
        serial, arrived = ends[SERIAL], ends[ARRIVED]
        for r in own:
            if serial and arrived and _ending(r) not in ends and (share := _share(store, serial, arrived, r)):
                yield Overlap(r, serial, arrived, share)


def _key(found: Found) -> tuple[str, ...]:
    r, dims = found
    return r.job, r.provider, r.mode, r.dtype, str(dims["n"]), str(dims["work"])


def _ending(r: Result) -> str:
    return r.kernel.partition("@")[0].rpartition(".")[2]


def _share(store: Reader, *rows: Result) -> Ratio | None:
    """Return the median of the overlaps of the rounds with an interval; None for too few.

    Rounds go forward and backward, so that two neighbours together are free of linear drift; they are taken so where
    there are enough of them.
    """
    shares = []
    for groups in zip(*(store.by_process(r.run_id, r.case) for r in rows), strict=False):
        rounds = min(map(len, groups))
        each = 2 if rounds >= 2 * MIN_SAMPLES else 1
        whole = rounds // each * each
        serial, work, own = (np.asarray(group[:whole]).reshape(-1, each).sum(axis=1) for group in groups)
        with np.errstate(divide="ignore"):
            shares += ((serial - own) / np.minimum(serial - work, work)).tolist()
    if len(shares) < MIN_SAMPLES:
        return None
    found = median_interval(shares)
    return Ratio(found.median, found.low, found.high)


def overlap_table(store: Reader, results: Iterable[Found], style: str = "simple") -> str:
    """Return the table of overlaps, or a line that names the command which measures some."""
    found = list(overlaps(store, results))
    if not found:
        return paragraph(
            "no overlap: the run has no transfer with work that was measured in turn with `serial` and `arrived`, at "
            "least six times; `kernelmark run transfer` measures some",
            style=style,
        )
    noise = noise_of([r for each in found for r in each[:3]]).sentence
    parts = [table(COLUMNS, [_cells(each) for each in found], style, titled=True)]
    return "\n\n".join([*parts, *([paragraph(noise, style=style)] if noise else [])])


def _cells(found: Overlap) -> Sequence[str]:
    share = found.share
    number = f"{share.median:.2f} {fmt.interval(share.low, share.high, '{:.2f}'.format)}".rstrip()
    times = (fmt.seconds(time_of(r).median) for r in found[:3])
    return found.row.problem, fmt.short(found.row.kernel), number, *times
