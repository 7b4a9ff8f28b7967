"""Fixtures that add rows to a store and judge claims by them."""

import pytest

from kernelmark.bench.claims.answer import claims_rows
from kernelmark.bench.claims.catalog import claims, experiment
from kernelmark.bench.claims.evidence import entries
from kernelmark.bench.measure.measurement import ProcessPart
from support import rows


@pytest.fixture
def put(store):
    """Return a function that adds a row, and begins the row's run if the store does not have it."""
    begun = set()

    def record(kernel, problem, time_s, spread=0.01, run_id="r1", medians=(), **values):
        if run_id not in begun:
            begun.add(run_id)
            rows.begin(store, run_id, machine={})
        device, threads = ("cuda", 1) if "/cu" in kernel else ("cpu", 2)
        case = {"run_id": run_id, "device": device, "device_name": device.upper(), "threads": threads}
        case |= {"time_s_ci95_low": time_s * (1 - spread), "time_s_ci95_high": time_s * (1 + spread)}
        samples = [time_s * (1 + spread * sign) for sign in (-1, 0, 1, 0)] * 6
        parts = [ProcessPart(24 // len(medians), median) for median in medians]
        rows.put(store, problem, kernel, time_s, None, samples, parts, **{**case, **values})

    return record


@pytest.fixture
def verdict(store, registry):
    def of(claim, run_ids=("r1",), **options):
        (answer,) = claims_rows(store, run_ids, registry, only=(claim,), **options)
        return answer

    return of


@pytest.fixture
def fill(put, registry):
    """Return a function that adds a row for each problem of a claim's experiment, with a kernel for each operation."""

    def of(claim, time_s, kernels, **values):
        problems = {layer.entry.problem.id: layer.base.op for layer in entries(experiment(*claims([claim])), registry)}
        for problem, op in problems.items():
            if op in kernels:
                put(kernels[op], problem, time_s, **values)

    return of
