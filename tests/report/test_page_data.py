"""The rows of a run as the page carries them."""

import base64

import numpy as np
import pytest

from kernelmark.bench.report.page_data import LEVELS, column, page_columns, page_data
from kernelmark.bench.report.run_data import RunData
from support.rows import begin, fail, many, put


def decoded(found, kind):
    return list(memoryview(base64.b64decode(found)).cast(kind))


def test_a_column_of_one_value_is_a_constant():
    assert column(["cold"] * 3) == {"constant": "cold"}
    assert column([]) == {"constant": None}


def test_texts_become_a_dictionary_with_codes():
    found = column(["a", "b", "a"])
    assert (found["values"], found["bytes"]) == (["a", "b"], 1)
    assert decoded(found["codes"], "B") == [0, 1, 0]
    wide = column([str(i) for i in range(300)])
    assert (wide["bytes"], decoded(wide["codes"], "H")[299]) == (2, 299)


def test_many_different_numbers_become_floats_and_unknowns_nan():
    values = [i / 7 for i in range(300)] + [None]
    floats = decoded(column(values)["floats"], "f")
    assert floats[5] == pytest.approx(5 / 7)
    assert floats[300] != floats[300]


def test_samples_are_carried_as_floats(begun):
    row = put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    found, samples = page_data(RunData(begun, "r1")), begun.samples("r1", row.case)
    assert decoded(found["samples"], "f") == pytest.approx(samples, rel=1e-6)
    assert found["levels"] is None


def test_above_the_limit_rows_carry_quantiles(store, monkeypatch):
    from kernelmark.bench.report import page_data as module

    many(store, 20)
    monkeypatch.setattr(module, "MOST_ROWS", 19)
    found = page_data(RunData(store, "r1"))
    assert found["levels"] == LEVELS
    assert len(decoded(found["samples"], "f")) == 20 * len(LEVELS)


def test_options_of_the_plan_are_part_of_the_command_and_imported_rows_have_none(store):
    begin(store, plan={"max_time_s": 0.5, "rel_ci": 0.01, "processes": 5, "plugins": ["a b.py"]})
    assert page_data(RunData(store, "r1"))["options"] == "--max-time 0.5 --processes 5 --plugin 'a b.py'"
    begin(store, "r2", plan={})
    assert page_data(RunData(store, "r2"))["options"] is None


def test_quantiles_of_many_rows_at_once_are_those_of_each_row(begun, monkeypatch):
    from kernelmark.bench.report import page_data as module

    for i, count in enumerate((40, 7, 40, 1)):
        put(
            begun,
            f"gemm/m{i}n8k8/f32/NN",
            "gemm/some.base",
            taken=[1e-3 * (1 + (j * 7 % 11) / 50) for j in range(count)],
        )
    fail(begun, "gemm/m9n9k9/f32/NN", "gemm/some.bad")
    put(begun, "gemm/m10n8k8/f32/NN", "gemm/some.base")
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    monkeypatch.setattr(module, "_AT_ONCE", 4)
    data = RunData(begun, "r1")
    found = page_data(data)
    lengths = found["lengths"]
    assert [lengths["values"][code] for code in decoded(lengths["codes"], "B")] == [7, 7, 7, 7, 0, 7]
    expected = [np.quantile(data.samples(row), LEVELS) for i, row in enumerate(data.rows) if i != 4]
    assert decoded(found["samples"], "f") == pytest.approx(np.concatenate(expected), rel=1e-6)


def test_the_data_of_a_page_take_as_many_statements_for_few_rows_as_for_many(store, monkeypatch):
    from kernelmark.bench.report import page_data as module

    monkeypatch.setattr(module, "MOST_ROWS", 10)
    many(store, 500)
    data, made = RunData(store, "r1"), []
    store._db.set_trace_callback(made.append)
    page_data(data)
    dict(page_columns(data))
    store._db.set_trace_callback(None)
    assert len(made) == 2


def test_a_column_of_the_table_is_what_its_values_give(store):
    many(store, 400)
    data = RunData(store, "r1")
    found = dict(page_columns(data))
    assert found.pop("started_at") == column([r.started_at[: len("2026-01-01T00:00")] for r in data.rows])
    assert found == {name: column([getattr(r, name) for r in data.rows]) for name in found}
