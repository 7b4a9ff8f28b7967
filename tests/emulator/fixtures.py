"""Run one kernel of a test's .cu file on arrays, and return its output arrays."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from kernelmark.bench.emulator.build import program, source_folder
from kernelmark.bench.emulator.report import Diagnostic
from kernelmark.bench.emulator.worker import Array, Buffer, Launch, Outcome, run


def first_short(values: Iterable[Any], name: Callable[[Any], str] = str) -> list[ParameterSet]:
    """Return a parameter for each value, with its name; the short test run uses only the first."""
    return [pytest.param(value, id=name(value), marks=pytest.mark.long if i else ()) for i, value in enumerate(values)]


def read(array: Array) -> Buffer:
    return Buffer("in", np.ascontiguousarray(array).ravel())


def written(count: int, dtype: Any = np.float32) -> Buffer:
    """Return an output buffer whose bits are all 1."""
    return Buffer("out", np.frombuffer(b"\xff" * (count * np.dtype(dtype).itemsize), dtype).copy())


#: The template instances to compile, by file, in intrinsics/ and user/.
INSTANCES = {
    "block.cu": ["memories<double, 48>"],
    "hopper.cu": [
        *(f"product_of_registers<{columns}>" for columns in (32, 64, 128)),
        *(
            f"product<{kind}, {a}, {b}, {columns}>"
            for kind in ("F16", "Bf16", "Tf32", "E4m3", "E5m2", "S8")
            for columns, a, b in product((32, 64, 128), (0, 1), (0, 1))
            if kind in ("F16", "Bf16") or (a, b) == (0, 0)
        ),
    ],
    "intrinsics.cu": ["pairs<__half2>", "pairs<__nv_bfloat162>", "added<__half2>"],
    "narrow.cu": [
        f"{function}<{kind}{more}>"
        for kind in ("__half", "__nv_bfloat16")
        for function, more in (("widen", ""), ("arithmetic", ""), ("round_to", ", float"), ("round_to", ", double"))
    ],
    "tensor.cu": [
        *("mma_tf32<false>", "mma_tf32<true>"),
        "wmma<nvcuda::wmma::precision::tf32, 16, 16, 8, nvcuda::wmma::row_major, nvcuda::wmma::col_major>",
        *(
            f"wmma<{kind}, {shape}, nvcuda::wmma::{a}_major, nvcuda::wmma::{b}_major>"
            for kind, a, b in product(("__half", "__nv_bfloat16"), ("row", "col"), ("row", "col"))
            for shape in ("16, 16, 16", "32, 8, 16", "8, 32, 16")
        ),
    ],
}


@cache
def together(source: Path) -> list[str]:
    """Return a file's kernels, except templates, and its template instances; all are compiled into one program."""
    function = r'^(?<!>\n)(?:extern "C" )?__global__ void (?:__cluster_dims__\(.*?\) )?(\w+)'
    return [*re.findall(function, source.read_text(), re.MULTILINE), *INSTANCES.get(source.name, ())]


def outputs_of(
    source: Path, launch: Launch, buffers: Mapping[str, Buffer], repeats: bool = True, **options: Any
) -> dict[str, Array]:
    """Return a kernel's outputs; fail on a report or, if `repeats`, on bits that depend on the order of threads."""
    outcomes = run(program(source, together(source)), buffers, [launch], **options)
    for outcome in outcomes:
        assert not outcome.reports, "\n".join(map(str, outcome.reports))
        for name, value in outcome.outputs.items():
            equal = value.tobytes() == outcomes[0].outputs[name].tobytes()
            assert equal or not repeats, f"{name} differs under {outcome.order}"
    return outcomes[0].outputs


def intrinsic(file: str, launch: Launch, buffers: Mapping[str, Buffer], **options: Any) -> dict[str, Array]:
    return outputs_of(Path(__file__).parent / "intrinsics" / file, launch, buffers, **options)


def outcomes_among(
    texts: Mapping[int, str], number: int, launch: Launch, buffers: Mapping[str, Buffer], file: str = "", **options: Any
) -> list[Outcome]:
    """Run the kernel of text `number`; all texts are compiled into one program, to start the compiler only once.

    Each text is written to a file with the name `file`, and included in its own namespace, `f` and the text's number.
    """
    files = {f"f{i}/{file or 'kernel.cu'}": text.replace('extern "C" ', "") for i, text in texts.items()}
    heads = dict.fromkeys(re.findall(r"^#include .*$", "\n".join(files.values()), re.MULTILINE))
    spaces = [f'namespace f{i} {{\n#include "{name}"\n}}' for i, name in zip(texts, files, strict=True)]
    source = source_folder(files | {"together.cu": "\n".join([*heads, *spaces, ""])}) / "together.cu"
    worker = program(source, [f"f{i}::{launch.entry}" for i in texts])
    return run(worker, buffers, [replace(launch, entry=f"f{number}::{launch.entry}")], **options)


def outcomes_of(text: str, launch: Launch, buffers: Mapping[str, Buffer], **options: Any) -> list[Outcome]:
    """Run a kernel whose text is in the test itself."""
    source = source_folder({"kernel.cu": text}) / "kernel.cu"
    return run(program(source, [launch.entry]), buffers, [launch], **options)


def reports_of(text: str, launch: Launch, buffers: Mapping[str, Buffer]) -> Sequence[Diagnostic]:
    """Return the reports on a kernel's run in forward order."""
    return outcomes_of(text, launch, buffers, orders=("forward",))[0].reports
