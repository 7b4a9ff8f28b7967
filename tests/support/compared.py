"""Runs of made-up medians in a store, and the result of comparing two of them."""

import msgspec
import numpy as np

from kernelmark.bench.compare.runs import Gate, compare_runs
from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.record.store import Run
from support.rows import result
from support.texts import csv_rows

NUMPY = {"versions": {"numpy": "2.4.5"}, "blas": []}
STEADY = (1.00e-3, 1.001e-3, 0.999e-3, 1.0005e-3, 0.9995e-3)
LOOSE = (1.00e-3, 1.05e-3, 0.96e-3, 1.03e-3, 0.98e-3)


def times(factor, medians=STEADY):
    return tuple(factor * median for median in medians)


def begin(store, run_id, **values):
    run = Run(run_id, {"cpu": "some"}, "2026", ("s",), "", NUMPY, "c0ffee", {"seed": 0})
    store.begin(msgspec.structs.replace(run, **values))


def add(store, run_id, problem, medians=(), status="ok", **values):
    fields = {"run_id": run_id, "op": "copy", "problem": f"copy/{problem}", "kernel": "copy/a.b", "status": status}
    median = float(np.median(medians)) if medians and status == "ok" else None
    row = result(**{**fields, "device_name": "d", "numerics": "exact", "layout": "", "time_s_median": median, **values})
    store.add(row, {}, [], None, [ProcessPart(1, time_s) for time_s in medians])


def compared(store, fail_slower=None, anyway=False, csv_path=None, base="base", new="new", margin=0.02, **gate):
    gate_ = None if fail_slower is None else Gate(fail_slower, **gate)
    return compare_runs((store, base), (store, new), margin, gate_, anyway, csv_path)


def verdicts(store, tmp_path, **options):
    compared(store, csv_path=tmp_path / "all.csv", **options)
    return {row["problem"].partition("/")[2]: row for row in csv_rows(tmp_path / "all.csv")}
