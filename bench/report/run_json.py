"""A run as JSON for other programs: its summary and its rows, written as they are read from the store."""

from typing import IO, Any

import msgspec

from kernelmark.bench.record.query import Dims
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.result import Result, row
from kernelmark.bench.report.anonymity import NAMES, hidden
from kernelmark.bench.report.runs import RunSummary, summary_of


class RunDocument(msgspec.Struct, frozen=True):
    """What `--json` prints of a run. results: the columns of each row, then the dimensions of its problem."""

    run: RunSummary
    results: list[Result]


def write_run(store: Reader, run_id: str, out: IO[str]) -> None:
    """Write a `RunDocument` of the selected rows of a run."""
    with store.snapshot():
        summary = msgspec.json.encode(summary_of(store, run_id)).decode()
        out.write(f'{{"run": {summary},\n"results": [')
        for i, (result, dims) in enumerate(store.results(run_id)):
            out.write(("" if i == 0 else ",") + "\n" + msgspec.json.encode(_row(store, result, dims)).decode())
        out.write("\n]}\n")


def _row(store: Reader, result: Result, dims: Dims) -> dict[str, Any]:
    found = row(result, dims)
    own = () if store.identifies else NAMES
    return found | {name: hidden(name, found[name]) for name in own}
