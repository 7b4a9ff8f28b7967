"""List the cuDNN algorithms that run on a GPU with this version of the library: `make gpu` writes cudnn.md.

A cell holds an algorithm's outcome on one probe (a small convolution): `runs` and its workspace if the result was
right, or else cuDNN's status.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.crashes import Execute

#: Small shapes, since every result is verified, with filters that some algorithms do not support.
SHAPES = {
    "3x3": "n8c64h28w28k64r3s3pad1",
    "5x5": "n8c32h28w28k64r5s5pad2",
    "9x9": "n8c32h32w32k32r9s9",
    "7x7/2": "n8c4h64w64k32r7s7pad3stride2",
}
#: Every storage type and layout for the first shape, the most common for the others.
FORMS = [("3x3", dtype, layout) for dtype in ("f32", "f16", "bf16") for layout in ("nchw", "nhwc")]
FORMS += [(shape, "f32", "nchw") for shape in list(SHAPES)[1:]]
TIMEOUT_S = 10.0
DIRECTIONS = ("fprop", "dgrad", "wgrad")


class Answer(NamedTuple):
    """A kernel's outcome on one probe."""

    kernel: str
    direction: str
    probe: str
    text: str
    reason: str


def probe(
    execute: Execute,
    pattern: str = "conv/cudnn",
    forms: Iterable[tuple[str, str, str]] = FORMS,
    over: Callable[[], bool] = lambda: False,
) -> list[Answer]:
    """Return the verified, untimed outcomes of kernels whose ids begin with `pattern`, until `over()` is true."""
    registry = discover()
    answers: list[Answer] = []
    for shape, dtype, layout in forms:
        for direction in DIRECTIONS:
            if over():
                return answers
            text = f"conv/{SHAPES[shape]}/{dtype}/{layout}/{direction}"
            problem = registry.problem(text)
            kernels = [k for k in registry.kernels.values() if k.id.startswith(pattern) and k.outside(problem) is None]
            names = tuple(k.id for k in kernels)
            job = Job((text,), names, Mode.VERIFY, (), 0, Budget(), threads=1, timeout_s=TIMEOUT_S)
            rows = execute(job, WorkerKey("cuda", 1)) if kernels else []
            answers += [answer(row, direction, f"{shape} {dtype} {layout}") for row in rows]
    return answers


def answer(row: Measurement, direction: str, name: str) -> Answer:
    if row.status == Status.OK:
        return Answer(row.kernel, direction, name, f"runs, {(row.scratch_bytes or 0) / 2**20:.1f} MiB", "")
    status = re.search(r"returned (?:CUDNN_STATUS_)?(\w+)", row.reason or "")
    return Answer(row.kernel, direction, name, status[1] if status else row.status, row.reason or "")


def table(answers: list[Answer]) -> str:
    probes = list(dict.fromkeys(answer.probe for answer in answers))
    cells = {(answer.kernel, answer.direction, answer.probe): answer.text for answer in answers}
    pairs = sorted({(answer.kernel, answer.direction) for answer in answers})
    lines = [
        (kernel, direction, *(cells.get((kernel, direction, p), "") for p in probes)) for kernel, direction in pairs
    ]
    reasons = sorted({f"- {a.kernel} {a.direction} on {a.probe}: {a.reason}" for a in answers if a.reason})
    return "\n".join([tabulate(lines, ("kernel", "pass", *probes), tablefmt="github"), "", *reasons])


def write(folder: Path, execute: Execute, over: Callable[[], bool]) -> str:
    answers = probe(execute, over=over)
    text = (
        "# cuDNN's algorithms on this device\n\n"
        f"Columns: a probe's filter, storage type and layout. Cells: the outcome and workspace.\n\n{table(answers)}\n"
    )
    (folder / "cudnn.md").write_text(text, encoding="utf-8")
    return f"{len(answers)} answers, {sum(a.text.startswith('runs') for a in answers)} run"
