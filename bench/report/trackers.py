"""Export rows to programs that track benchmarks over commits: github-action-benchmark, Bencher and asv.

Each timed row is a benchmark with the name of its case. The programs document their formats:
https://github.com/benchmark-action/github-action-benchmark, https://bencher.dev/docs/reference/bencher-metric-format,
https://asv.readthedocs.io/en/stable/dev.html.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import IO, Any

from kernelmark.bench.measure.stats import quantile
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.text import as_json, one_line
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import is_timed
from kernelmark.bench.report.format import interval, row_time

#: Units in a second. All rows and commits use the same unit; with another unit for long times, a chart would jump.
_US, _NS = 1e6, 1e9
_ASV = (
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples",
)  # fmt: skip


def write_github(store: Store, run_ids: Sequence[str], out: IO[str]) -> None:
    """Write the format `customSmallerIsBetter`: medians in microseconds, with the 95 % interval as range."""
    with store.snapshot():
        _write_joined(out, "[]", (as_json(entry) for run_id in run_ids for entry in _entries(store, run_id)))


def _entries(store: Store, run_id: str) -> Iterator[dict[str, Any]]:
    for r, _ in store.results(run_id):
        if is_timed(r):
            median, low, high = (None if end is None else end * _US for end in row_time(r))
            extra = one_line(f"95 % {r.interval}, {r.samples} samples, {r.device_name}, run {run_id}")
            around = {"range": text} if (text := interval(low, high, "{:.6g}".format)) else {}
            yield {"name": r.case, "unit": "us", "value": median, **around, "extra": extra}


def write_bencher(store: Store, run_ids: Sequence[str], out: IO[str]) -> None:
    """Write the Bencher Metric Format: medians in nanoseconds as `latency`, with the ends of their intervals."""
    run_id = _only(run_ids, "bencher")
    with store.snapshot():
        timed = (r for r, _ in store.results(run_id) if is_timed(r))
        _write_joined(out, "{}", (f"{as_json(r.case)}:{as_json({'latency': _metric(row_time(r))})}" for r in timed))


def _metric(times_s: Sequence[float | None]) -> dict[str, float]:
    names = ("value", "lower_value", "upper_value")
    return {name: number * _NS for name, number in zip(names, times_s, strict=True) if number is not None}


def write_asv(store: Store, run_ids: Sequence[str], out: IO[str]) -> None:
    """Write a file of asv's results: medians and samples in seconds, by benchmark.

    asv expects the date of the commit, which is unknown here, so the run's date is written. asv's intervals are 99 %
    intervals and kernelmark's are 95 %, so intervals are left out.
    """
    run_id = _only(run_ids, "asv")
    with store.snapshot():
        run = store.run(run_id)
        facts = {k: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in run.machine.items()}
        head = {
            "version": 2,
            "commit_hash": run.git_commit.removesuffix("-dirty"),
            "env_name": "kernelmark",
            "date": _milliseconds(run.started_at),
            "params": {"machine": str(run.machine.get("cpu", "")), **facts},  # asv expects texts
            "python": str(run.machine.get("python", "")),
            "requirements": {},
            "env_vars": {},
            "result_columns": _ASV,
            "durations": {},
        }
        out.write(as_json(head)[:-1] + ',"results":')
        _write_joined(out, "{}", _benchmarks(store, run_id))
        out.write("}\n")


def _benchmarks(store: Store, run_id: str) -> Iterator[str]:
    for (r, _), blob in zip(store.results(run_id), store.sample_blobs(run_id), strict=True):
        if is_timed(r):
            samples = array("d", blob).tolist()
            low, high = (quantile(sorted(samples), share) if samples else None for share in (0.25, 0.75))
            began = _milliseconds(r.started_at)
            stats = [[None], [None], [low], [high], [1], [len(samples)], [samples]]
            yield f"{as_json(r.case)}:{as_json([[r.time_s_median], [], None, began, None, *stats])}"


def _milliseconds(moment: str) -> int | None:
    try:
        return round(datetime.fromisoformat(moment).timestamp() * 1e3)
    except ValueError:  # an imported run's date may have any form
        return None


def _only(run_ids: Sequence[str], style: str) -> str:
    if len(run_ids) > 1:
        raise UsageError(f"--format {style}: takes one run, found {len(run_ids)}; name one")
    return run_ids[0]


def _write_joined(out: IO[str], brackets: str, texts: Iterable[str]) -> None:
    out.write(brackets[0])
    for i, text in enumerate(texts):
        out.write(("," if i else "") + "\n" + text)
    out.write("\n" + brackets[1] + "\n")
