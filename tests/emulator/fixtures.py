"""Running one kernel of a test's own .cu: arrays in, arrays out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from kernelmark.bench.emulator.build import program, source_folder
from kernelmark.bench.emulator.report import Diagnostic
from kernelmark.bench.emulator.worker import Buffer, Launch, Outcome, run

Array = np.ndarray[Any, Any]


def first_short(values: Iterable[Any], name: Callable[[Any], str] = str) -> list[ParameterSet]:
    """Return a parameter for each value, with its name; the short run takes the first alone."""
    return [pytest.param(value, id=name(value), marks=pytest.mark.long if i else ()) for i, value in enumerate(values)]


def read(array: Array) -> Buffer:
    """An input."""
    return Buffer("in", np.ascontiguousarray(array).ravel())


def written(count: int, dtype: Any = np.float32) -> Buffer:
    """An output, full of ones' bits until it is written."""
    return Buffer("out", np.frombuffer(b"\xff" * (count * np.dtype(dtype).itemsize), dtype).copy())


def intrinsic(file: str, launch: Launch, buffers: Mapping[str, Buffer], **options: Any) -> dict[str, Array]:
    """Outputs of a kernel in intrinsics/, equal under all orders and without a report."""
    worker = program(Path(__file__).parent / "intrinsics" / file, [launch.entry])
    outcomes = run(worker, buffers, [launch], **options)
    for outcome in outcomes:
        assert not outcome.reports, "\n".join(map(str, outcome.reports))
        for name, value in outcome.outputs.items():
            assert value.tobytes() == outcomes[0].outputs[name].tobytes(), f"{name} differs under {outcome.order}"
    return outcomes[0].outputs


def outcomes_of(text: str, launch: Launch, buffers: Mapping[str, Buffer], **options: Any) -> list[Outcome]:
    """The runs of a kernel written down in the test itself."""
    source = source_folder({"kernel.cu": text}) / "kernel.cu"
    return run(program(source, [launch.entry]), buffers, [launch], **options)


def reports_of(text: str, launch: Launch, buffers: Mapping[str, Buffer]) -> Sequence[Diagnostic]:
    """The reports of its run in forward order."""
    return outcomes_of(text, launch, buffers, orders=("forward",))[0].reports
