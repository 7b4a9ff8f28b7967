"""A kernel that is mistrusted loses its time and keeps the samples that accuse it: real runs of kernels that cheat."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.job import run_job
from kernelmark.bench.selftest.adversaries import EXPECTED
from kernelmark.bench.selftest.known import plugin

OVERSTATED = """
import numpy as np
from kernelmark import kernel

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",), numerics="fp32", executed=lambda problem: 10**15)
def overstated(problem, x):
    '''Declares more than any machine executes.'''
    return lambda: np.matmul(x.a, x.b.T, out=x.c)
"""
GEMM = "gemm/m96n96k96/f32/NT"
pytestmark = pytest.mark.usefixtures("registry")  # which forgets the plug-ins that are loaded into this process


def table(text: str) -> dict[str, str]:
    """The values of the lines that have a name and a value."""
    pairs = (line.split("  ", 1) for line in text.splitlines() if "  " in line)
    return {name: value.strip() for name, value in pairs}


def test_a_row_above_the_ceiling_has_no_time_and_show_prints_the_samples_and_the_ceiling(
    tmp_path: Path, kernelmark: Callable[..., object]
) -> None:
    (tmp_path / "mine.py").write_text(OVERSTATED)
    quick = ("--mode", "hot", "--max-time", "0.05", "--threads", "1", "--plugin", "mine.py", "--db", "r.db")
    assert kernelmark("run", GEMM, "--kernels", "gemm/mine.*", *quick).returncode == 1
    store = Store(tmp_path / "r.db", create=False)
    ((row, _),) = store.results(store.run_ids()[0])
    evidence = store.evidence(row.run_id, row.case)
    assert (row.status, row.samples, row.time_s_median, row.gflop_per_s) == ("mistrusted", 0, None, None)
    assert store.samples(row.run_id, row.case) == []
    store.close()

    shown = kernelmark("show", "--row", "overstated", "--db", "r.db")
    assert (shown.returncode, shown.stderr) == (0, "")
    columns, accusation = shown.stdout.split("The samples that accuse it")
    said, found = table(columns), table(accusation)
    assert row.case in columns
    assert (said["status"], said["problem"], said["m"]) == ("mistrusted", GEMM, "96")
    assert not any(name.startswith("time_s") for name in said)
    assert int(found["samples"]) == len(evidence.samples) >= 6
    assert float(found["time_s_min"]) == min(evidence.samples)
    assert float(found["time_s_ci95_low"]) <= float(found["time_s_median"]) <= float(found["time_s_ci95_high"])
    assert found["declared"] == "1,000,000,000,000,000 flop"
    assert found["over time_s_ci95_high"].endswith(" GFLOP/s")
    assert evidence.excess.rate == 1e15 / evidence.interval.high
    assert " by fma/numba.fma on fma/" in found["surpassed ceiling"]


def test_a_kernel_that_is_seen_to_spare_itself_work_keeps_the_samples_that_were_taken() -> None:
    cheats = EXPECTED["only_when_changed"]
    kernels = (cheats.honest, "gemm/selftest.only_when_changed")
    job = Job((cheats.problem,), kernels, Mode.HOT, (plugin("cheats"),), 0, Budget(0.3), 1, cheats.honest)
    honest, cheat = run_job(job)
    assert (cheat.status, cheat.samples, cheat.parts, cheat.interval, cheat.ratio) == ("mistrusted", [], [], None, None)
    assert (cheat.stopped_by, cheat.repeated) == ("", None)
    assert len(cheat.evidence.samples) >= 6
    assert cheat.evidence.excess is None
    assert min(cheat.evidence.samples) < min(honest.samples)
    assert honest.evidence is None
