"""A run and rows of it as the store keeps them, for its tests."""

from typing import Any

from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Run

RUN = Run("r1", {"cpu": "some"}, "2026-01-01T00:00:00", ("smoke",), "kernelmark run smoke", {"blas": []}, "c0ffee", {})


def result(**values: Any) -> Result:
    """A row of the run, with these values in the place of the usual ones."""
    identity = {"run_id": "r1", "suite": "smoke", "op": "gemm", "problem": "gemm/m8n8k8/f32/NT", "kernel": "gemm/a.b"}
    device = {"provider": "a", "device": "cpu", "device_name": "some", "mode": "cold", "threads": 1}
    kind = {"dtype": "f32", "numerics": "fp32", "layout": "NT", "status": "ok", "reason": ""}
    return Result(**{**identity, **device, **kind, **values})
