"""A report of an NVIDIA GPU: `make gpu` verifies every CUDA kernel with both launchers, runs smoke and seed, publishes.

Writes `reports/<device>-<date>/` with results.csv, environment.json, tables.md, claims.csv and claims.md (verdicts from
these rows), cudnn.md and bars.md. Rows come from three processes, as many as fit into the minutes. The bars are
measured in as many fresh processes as fit into the eight minutes. The exit status is 1 if a check failed, and
2 if there is no GPU.
"""

import json
import re
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tabulate import tabulate

import cudnn_table
from agreement import compare_all
from bench.claims import claims_rows
from bench.claims.views import write_files
from bench.measure.cpu import cpu_count
from bench.measure.cuda import cuda_missing
from bench.measure.devices import get_device
from bench.measure.launch import cuda_launch
from bench.measure.machine import environment, machine, module_missing
from bench.measure.operands import Operands, OperandSet, Scratch
from bench.measure.stats import median_interval
from bench.measure.timing import CpuClock
from bench.plan.case import Plan
from bench.plan.discovery import discover
from bench.plan.kernel import CudaKernel
from bench.plan.modes import Mode
from bench.plan.status import AGAINST
from bench.plan.suites import find_suite
from bench.record.store import Store
from bench.report.export import write_csv
from bench.report.tables import ceiling_table, run_table, summary
from bench.run.pool import Workers
from bench.run.session import Session, run_suites
from gpu_bars import all_bars, measure, verdicts

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("smoke", "seed")
MAX_TIME_S = 0.15
PROCESSES = 3
TOTAL_S = 480.0
TINY = "transpose/m32n32/f32/out"
LAUNCHERS = {"cuda-core": "cuda.core", "pycuda": "pycuda.driver"}


def main() -> int:
    """Verify, measure, publish."""
    if reason := cuda_missing():
        print(f"make gpu: {reason}", file=sys.stderr)
        return 2
    began = time.monotonic()
    device = re.sub(r"[^a-z0-9]+", "-", get_device("cuda").device_name.lower()).strip("-")
    folder = ROOT / "reports" / f"{device}-{datetime.now(UTC):%Y-%m-%d}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch, "results.db"))
        verified = [_verify(store, launcher, module) for launcher, module in LAUNCHERS.items()]
        verified.append(_agreement())
        session = _run(
            store,
            Plan(("cpu", "cuda"), threads=(cpu_count(),), max_time_s=MAX_TIME_S, processes=PROCESSES, spread_s=0.0),
        )
        _publish(store, session.run_id, folder, [line for line, _ in verified])
        write_files(folder, claims_rows(store, [session.run_id], here=True), folder.name)
        store.close()
    cudnn_table.write(folder)
    _bars(folder, TOTAL_S - (time.monotonic() - began))
    print(f"written: {folder.relative_to(ROOT)}")
    return 1 if session.against or any(against for _, against in verified) else 0


def _bars(folder: Path, budget_s: float) -> None:
    """Which promises hold here, printed and written."""
    bars = all_bars()
    lines = verdicts(bars, measure(budget_s))
    headers = ("", "promise", "median over processes [least, most]", "processes")
    print(tabulate(lines, headers))
    text = f"# Bars\n\n{tabulate(lines, headers, tablefmt='github')}\n"
    (folder / "bars.md").write_text(text, encoding="utf-8")


def _verify(store: Store, launcher: str, module: str) -> tuple[str, int]:
    """Every CUDA kernel on both suites through one launcher: a line for the report, and how many verdicts failed."""
    if missing := module_missing(module):
        return f"{launcher}: not verified, {missing}", 0
    kernels = () if launcher == "cuda-core" else ("*/cuda.*",)
    session = _run(store, Plan(("cuda",), kernels, launcher=launcher, mode=Mode.VERIFY))
    rows = [result for result, _ in store.results(session.run_id)]
    bad = [f"  {r.status}: {r.kernel} on {r.problem}: {r.reason}" for r in rows if r.status in AGAINST]
    print("\n".join([f"{launcher}: {summary(rows)}", *bad]))
    return "\n".join([f"{launcher}: {summary(rows)}", *bad]), session.against


def _agreement() -> tuple[str, int]:
    """Every emulated test case on the device too: a line for the report, and how many verdicts differ."""
    lines = list(compare_all())
    differing = [line for line in lines if line]
    text = "\n".join([f"emulator and device: {len(lines)} test cases, {len(differing)} disagree", *differing])
    print(text)
    return text, len(differing)


def _run(store: Store, plan: Plan) -> Session:
    registry = discover()
    suites = [find_suite(name, registry) for name in SUITES]
    with Workers() as workers:
        session = Session(store, suites, plan, workers.run)
        run_suites(session, suites, registry, plan, lambda result: None)
    return session


def _launch_latency() -> str:
    """Host time of a launch by each launcher, on a kernel that does next to nothing; rows do not hold it."""
    registry = discover()
    problem, kernel = registry.problem(TINY), registry.kernels["transpose/cuda.naive"]
    assert isinstance(kernel, CudaKernel)
    lines = []
    for launcher, module in LAUNCHERS.items():
        if missing := module_missing(module):
            lines.append(f"{launcher}: not measured, {missing}")
            continue
        device = get_device("cuda")
        operands = Operands(OperandSet(problem, device), "C", device, 1, Scratch(device))
        launch = cuda_launch(kernel, problem, operands, launcher)
        launch()
        samples = []
        for _ in range(50):
            device.synchronize()
            samples.append(CpuClock().time([launch] * 200))
        found = median_interval(samples)
        lines.append(f"{launcher}: {found.median * 1e6:.2f} us [{found.low * 1e6:.2f}, {found.high * 1e6:.2f}]")
    return "\n".join(lines)


def _publish(store: Store, run_id: str, folder: Path, verdicts: list[str]) -> None:
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as out:
        write_csv(store, run_id, out)
    run = store.find_run(run_id)
    facts = {"machine": machine(), "environment": environment(), "git_commit": run["git_commit"], "run_id": run_id}
    (folder / "environment.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    rows = [result for result, _ in store.results(run_id)]
    text = [
        f"# {facts['machine'].get('gpu')}, {run['started_at'][:10]}",
        "One process a case; intervals are within-process. Verified against float64 before and after timing.",
        "Verification of every CUDA kernel on both suites, by launcher:",
        "```\n" + "\n".join(verdicts) + "\n```",
        f"Host time of one launch of transpose/cuda.naive on {TINY}, 200 at a time:",
        f"```\n{_launch_latency()}\n```",
        run_table(rows, "github"),
        ceiling_table(store.ceilings(run_id), "github"),
        summary(rows),
    ]
    (folder / "tables.md").write_text("\n\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
