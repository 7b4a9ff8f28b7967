"""The rows of a run as the page carries them."""

import base64

import pytest

from bench.report.page_data import LEVELS, column, page_data
from bench.report.run_data import RunData
from report_rows import begin, many, put


def decoded(found, kind):
    return list(memoryview(base64.b64decode(found)).cast(kind))


def test_a_column_of_one_value_is_a_constant():
    assert column("mode", ["cold"] * 3) == {"constant": "cold"}
    assert column("mode", []) == {"constant": None}


def test_texts_become_a_dictionary_with_codes():
    found = column("kernel", ["a", "b", "a"])
    assert (found["values"], found["bytes"]) == (["a", "b"], 1)
    assert decoded(found["codes"], "B") == [0, 1, 0]
    wide = column("problem", [str(i) for i in range(300)])
    assert (wide["bytes"], decoded(wide["codes"], "H")[299]) == (2, 299)


def test_many_different_numbers_become_floats_and_unknowns_nan():
    values = [i / 7 for i in range(300)] + [None]
    floats = decoded(column("load", values)["floats"], "f")
    assert floats[5] == pytest.approx(5 / 7)
    assert floats[300] != floats[300]


def test_samples_are_carried_to_a_65535th_of_their_range(store):
    begin(store)
    row = put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    found, samples = page_data(RunData(store, "r1")), store.samples("r1", row.case)
    (low,), (high,) = (decoded(found[end]["floats"], "f") for end in ("low", "high"))
    back = [low + code / 65535 * (high - low) for code in decoded(found["samples"], "H")]
    assert back == pytest.approx(samples, rel=1e-6)
    assert found["levels"] is None


def test_above_the_limit_rows_carry_quantiles(store, monkeypatch):
    from bench.report import page_data as module

    many(store, 20)
    monkeypatch.setattr(module, "MOST_ROWS", 19)
    found = page_data(RunData(store, "r1"))
    assert found["levels"] == LEVELS
    assert len(decoded(found["samples"], "H")) == 20 * len(LEVELS)


def test_options_of_the_plan_are_part_of_the_command_and_imported_rows_have_none(store):
    begin(store, plan={"max_time_s": 0.5, "rel_ci": 0.01, "processes": 5, "plugins": ["a b.py"]})
    assert page_data(RunData(store, "r1"))["options"] == "--max-time 0.5 --processes 5 --plugin 'a b.py'"
    begin(store, "r2", plan={})
    assert page_data(RunData(store, "r2"))["options"] is None
