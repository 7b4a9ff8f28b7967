"""Export rows as Parquet, by row group: the columns of the CSV with types and units, and the samples."""

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import replacing
from kernelmark.bench.record.columns import COLUMNS, KINDS
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.anonymity import nameless_run, records

#: The number of rows in memory at a time.
ROW_GROUP = 2000
SAMPLES = "samples_s"
#: Units of columns by the ends of their names. Columns that begin with `time_s_` hold seconds; others have no unit.
_UNITS = {
    "gflop_per_s": "GFLOP/s",
    "gbyte_per_s": "GB/s",
    "_bytes": "B",
    "_mhz": "MHz",
    "_c": "°C",
    "_w": "W",
    "_j": "J",
    "_pct": "%",
    "_pct_cycles": "%",
    "_flop": "flop",
    "_s": "s",
}
_TYPES = {int: "int64", float: "float64", str: "string"}


def unit(column: str) -> str:
    """Return the unit of a column, or "". Dimensions have no unit."""
    if column.startswith("time_s_"):
        return "s"
    return next((text for ending, text in _UNITS.items() if column.endswith(ending)), "")


def write_parquet_file(store: Store, run_ids: Sequence[str], path: Path) -> None:
    """Write every column of the CSV, with null for empty cells, and `samples_s` (seconds per call).

    Units are in the fields' metadata under `unit`; plan, machine and environment of the run are in the file's metadata
    under `kernelmark`, as JSON, a list for several runs. Raises UsageError; the file then stays unchanged.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("parquet: pyarrow is not installed; pip install 'kernelmark[export]'") from None
    with replacing(path) as beside, beside.open("wb") as out, store.snapshot():
        dims = _dimension_types(store, run_ids)
        runs = [_facts(store, run_id) for run_id in run_ids]
        schema = _schema(arrow, dims, runs if len(runs) > 1 else runs[0])
        rows = chain.from_iterable(_rows(store, run_id, dims) for run_id in run_ids)
        with parquet.ParquetWriter(out, schema) as writer:
            while chunk := list(islice(rows, ROW_GROUP)):
                columns = [list(column) for column in zip(*chunk, strict=True)]
                arrays = [arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _facts(store: Store, run_id: str) -> dict[str, Any]:
    run = msgspec.structs.asdict(store.run(run_id))
    return run if store.identifies else nameless_run(run)


def _schema(arrow: Any, dims: dict[str, str], facts: Any) -> Any:
    units = {name: {"unit": unit(name)} for name in COLUMNS if unit(name)}
    fields = [
        arrow.field(name, arrow.type_for_alias(_TYPES[KINDS[name]]), metadata=units.get(name)) for name in COLUMNS
    ]
    fields += [arrow.field(name, arrow.type_for_alias(kind)) for name, kind in dims.items()]
    fields += [arrow.field(SAMPLES, arrow.list_(arrow.float64()), metadata={"unit": "s"})]
    return arrow.schema(fields, {"kernelmark": json.dumps(facts)})


def _dimension_types(store: Store, run_ids: Sequence[str]) -> dict[str, str]:
    kinds: dict[str, set[type]] = {}
    for _, dims, _ in chain.from_iterable(map(store.records, run_ids)):
        for name, value in dims.items():
            kinds.setdefault(name, set()).add(type(value))
    return {
        name: "int64" if types == {int} else "float64" if types <= {int, float} else "string"
        for name, types in kinds.items()
        if name not in (*COLUMNS, SAMPLES)
    }


def _rows(store: Store, run_id: str, dims: dict[str, str]) -> Iterator[tuple[Any, ...]]:
    texts = {name for name, kind in dims.items() if kind == "string"}
    for values, row_dims, samples in records(store, run_id, samples=True):
        known = {name: str(value) if name in texts else value for name, value in row_dims.items() if value is not None}
        yield (*values, *map(known.get, dims), samples)
