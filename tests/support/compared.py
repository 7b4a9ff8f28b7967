"""Runs of made-up medians in a store, and the result of comparing two of them."""

import numpy as np

from kernelmark.bench.compare.runs import Gate, compare_runs
from kernelmark.bench.measure.measurement import ProcessPart
from support import rows
from support.texts import csv_rows

#: A run with only the facts that comparisons mention.
PLAIN = {"machine": {"cpu": "some"}, "environment": {"versions": {"numpy": "2.4.5"}, "blas": []}, "plan": {"seed": 0}}
PLAIN |= {"suites": ("s",), "git_commit": "c0ffee"}
STEADY = (1.00e-3, 1.001e-3, 0.999e-3, 1.0005e-3, 0.9995e-3)
LOOSE = (1.00e-3, 1.05e-3, 0.96e-3, 1.03e-3, 0.98e-3)


def times(factor, medians=STEADY):
    return tuple(factor * median for median in medians)


def begin(store, run_id, **values):
    rows.begin(store, run_id, **{**PLAIN, **values})


def add(store, run_id, problem, medians=(), status="ok", **values):
    median = float(np.median(medians)) if medians and status == "ok" else None
    names = {"run_id": run_id, "op": "copy", "problem": f"copy/{problem}", "kernel": "copy/a.b", "device_name": "d"}
    fields = {**names, "numerics": "exact", "layout": "", "status": status, "time_s_median": median}
    store.add(rows.result(**{**fields, **values}), {}, [], None, [ProcessPart(1, time_s) for time_s in medians])


def compared(store, fail_slower=None, anyway=False, csv_path=None, base="base", new="new", margin=0.02, **gate):
    gate_ = None if fail_slower is None else Gate(fail_slower, **gate)
    return compare_runs((store, base), (store, new), margin, gate_, anyway, csv_path)


def verdicts(store, tmp_path, **options):
    compared(store, csv_path=tmp_path / "all.csv", **options)
    return {row["problem"].partition("/")[2]: row for row in csv_rows(tmp_path / "all.csv")}
