"""Rows of a store, and the verdicts of claims on them."""

import msgspec
import pytest

from kernelmark.bench.claims import claims_rows
from kernelmark.bench.claims.catalog import claims, experiment
from kernelmark.bench.claims.evidence import entries
from kernelmark.bench.measure.measurement import ProcessPart
from support.rows import RUN, result


@pytest.fixture
def put(store):
    """Records rows: `put(kernel, problem, time, ...)`; each time a run of its own name begins if there is none."""
    begun = set()

    def record(kernel, problem, time_s, spread=0.01, run_id="r1", medians=(), **values):
        if run_id not in begun:
            begun.add(run_id)
            store.begin(msgspec.structs.replace(RUN, run_id=run_id, machine={}))
        device = "cuda" if "/cu" in kernel else "cpu"
        samples = [time_s * (1 + spread * sign) for sign in (-1, 0, 1, 0)] * 6
        ends = {"time_s_ci95_low": time_s * (1 - spread), "time_s_ci95_high": time_s * (1 + spread)}
        where = {"op": kernel.partition("/")[0], "device": device, "device_name": device.upper(), "samples": 24}
        times = {"time_s_median": time_s, **ends, "interval": "within-process"}
        case = {"run_id": run_id, "problem": problem, "kernel": kernel, "threads": 2 if device == "cpu" else 1}
        case["job"] = " ".join([run_id, problem, *(str(values.get(name)) for name in ("mode", "isa", "threads"))])
        row = result(**{"layout": "", **where, **case, **times, **values})
        parts = [ProcessPart(24 // len(medians), median) for median in medians]
        store.add(row, {}, samples if row.status == "ok" else [], None, parts)

    return record


@pytest.fixture
def verdict(store, registry):
    """The answer to one claim from the rows of run r1."""

    def of(claim, run_ids=("r1",), **options):
        (answer,) = claims_rows(store, run_ids, registry, only=(claim,), **options)
        return answer

    return of


@pytest.fixture
def fill(put, registry):
    """Records a row of each problem of a claim's experiment: `fill(claim, time, kernel of each operation, ...)`."""

    def of(claim, time_s, kernels, **values):
        problems = {layer.entry.problem.id: layer.base.op for layer in entries(experiment(*claims([claim])), registry)}
        for problem, op in problems.items():
            if op in kernels:
                put(kernels[op], problem, time_s, **values)

    return of
