"""`kernelmark scaling`: values that are refused in one line, its JSON, and its files."""

import sqlite3

import pytest

from kernelmark.bench.cli.documents import DOCUMENTS
from kernelmark.bench.record.store import Layer
from support.rows import begin, put

WORDS = ("scaling", "net", "--link", "8GB/s", "--workers", "4,8,1")


@pytest.fixture
def path(store):
    """A closed store with a network of one layer and an aggregation of its gradient."""
    begin(store)
    for problem, part in (("gemm/m1n1000k500/f32/NT", "forward"), ("gemm/m1000n500k1/f32/TN", "backward")):
        put(store, problem, "gemm/a.b")
        store.add_layer("r1", Layer("net", problem, part, 1))
    put(store, "aggregate/w4n500000/f32", "aggregate/cpu.host_serial", 1e-4, {"w": 4, "n": 500_000, "step": "sum"})
    store.close()
    return str(store.path)


def test_the_table_is_printed_and_nothing_is_stored(called, path):
    with sqlite3.connect(path) as db:
        before = list(db.iterdump())
    printed = called(*WORDS, "--db", path).printed
    assert "500,000 weights, 2.00 MB a gradient" in printed
    assert "TensorFlow on 4 GPUs" in printed
    with sqlite3.connect(path) as db:
        assert list(db.iterdump()) == before


def test_the_json_has_its_schema_and_every_strategy_at_every_number_of_workers(called, path):
    import msgspec

    done = called(*WORDS, "--db", path, "--json")
    document = msgspec.json.decode(done.out, type=DOCUMENTS["scaling"][1], strict=True)
    assert [(point.kernel, point.workers) for point in document.computed] == [
        ("aggregate/cpu.host_serial", workers) for workers in (1, 4, 8)
    ]
    assert (document.parameters, document.link_bytes_per_s) == (500_000, 8e9)
    assert [stated.what for stated in document.stated] == ["TensorFlow on 4 GPUs"]


def test_figures_are_written_where_asked_and_named(called, path, tmp_path):
    done = called(*WORDS, "--db", path, "--figures", str(tmp_path / "out"))
    assert done.status == 0
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"scaling-net-cpu-t2-cold-fp32.svg", "scaling-net-cpu-t2-cold-fp32.pdf"}
    assert "scaling-net-cpu-t2-cold-fp32.svg" in done.out


def test_figures_that_cannot_be_written_are_one_line(called, path, tmp_path):
    (tmp_path / "file").touch()
    done = called(*WORDS, "--db", path, "--figures", str(tmp_path / "file" / "out"))
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "cannot be written" in done.err


@pytest.mark.parametrize("text", ["", "0", "1,", "-2", "1.5", "2,x", "10000000", "9" * 5000])
def test_bad_workers_are_one_line_with_what_is_expected(called, path, text):
    line = called("scaling", "net", "--link", "8GB/s", "--workers", text, "--db", path).refusal
    assert "expected integers from 1 to 1000000, separated by commas" in line


@pytest.mark.parametrize("text", ["", "8", "8GB", "fast", "-8GB/s", "0GB/s", "nanGB/s", "1e999GB/s", "8 GB/s", "8gb/s"])
def test_a_bad_link_is_one_line_with_what_is_expected(called, path, text):
    line = called("scaling", "net", f"--link={text}", "--db", path).refusal
    assert "expected a rate from 1 B/s to 1 EB/s, such as 8GB/s or 10Gbit/s" in line


def test_a_link_that_is_not_stated_is_asked_for(called, path):
    assert "--link" in called("scaling", "net", "--db", path).refusal


def test_bits_a_second_are_an_eighth_of_bytes(called, path):
    in_bits, in_bytes = (called("scaling", "net", "--link", text, "--db", path).out for text in ("8Gbit/s", "1GB/s"))
    assert in_bits == in_bytes != ""
