"""Our own CSV as a run of its own: what is read gives the same rows again, and what cannot be ours is refused."""

import csv
import io

import pytest

from complaints import complaints
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.record.result import COLUMNS
from kernelmark.bench.record.table import Builder

WRONG = """
from kernelmark import Launch, kernel

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",), numerics="fp32")
def wrong(problem, x) -> Launch:
    '''Wrong.'''
    return lambda: x.c.fill(7)

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",), numerics="fp32",
        supports=lambda p: 'needs "m % 4", not 33,\\r\\nand patience')
def picky(problem, x) -> Launch:
    '''Picky.'''
    return lambda: None
"""
PROBLEMS = (
    "gemm/m33n31k17/f32/NT/beta1",
    "transpose/m33n31/f32/in",
    "conv/n2c3h9w9k5r3s3pad1/f32/nchw/fprop",
    "fft/b4h8w8/f32/r2c",
)
KERNELS = ("gemm/numpy.matmul", "gemm/mine.*", "transpose/openblas.imatcopy", "conv/cpu.im2col", "fft/scipy.pocketfft")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, kernelmark_in):
    """The CSV of a real run with failures, problems in place and convolutions."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "mine.py").write_text(WRONG)
    globs = [word for glob in KERNELS for word in ("--kernels", glob)]
    quick = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings", "--device", "cpu")
    options = ("--plugin", "mine.py", "--threads", "1,2", *quick)
    done = kernelmark_in(folder, "run", *PROBLEMS, *globs, *options, "--csv", "run.csv")
    assert (done.returncode, complaints(done.stderr)) == (1, [])
    return folder / "run.csv"


def test_csv_gives_the_same_bytes_again_but_for_the_id_of_the_run(measured, imported, tmp_path, csv_of):
    ((run, rows),) = imported(measured)
    before = measured.read_bytes().decode()
    old = before.splitlines()[1].split(",")[1]
    assert {r.status for r, _ in rows.values()} == {"ok", "wrong", "unsupported"}
    assert csv_of(tmp_path / "results.db", run.run_id) == before.replace(old, run.run_id)
    assert run.run_id != old


def test_csv_gives_dimensions_with_their_types(measured, imported):
    ((_, rows),) = imported(measured)
    dims = {r.op: d for r, d in rows.values()}
    assert (dims["gemm"]["m"], dims["gemm"]["beta"]) == (33, 1.0)
    assert isinstance(dims["gemm"]["m"], int)
    assert dims["transpose"] == {"batch": 1, "m": 33, "n": 31, "place": "in"}
    assert "place" not in dims["conv"]


def test_csv_keeps_the_machine_that_its_rows_tell(measured, imported):
    ((run, rows),) = imported(measured)
    assert run.machine == {"cpu": next(iter(rows.values()))[0].device_name}
    assert run.suites == ("imported:run.csv",)
    assert run.command == f"kernelmark import {measured}"


def test_csv_of_an_older_kernelmark_lacks_the_newer_columns(measured, imported, tmp_path):
    cut = COLUMNS.index("bound_by")
    lines = [
        line.split(",") for line in measured.read_text().splitlines() if '"' not in line and "patience" not in line
    ]
    old = tmp_path / "old.csv"
    old.write_text("".join(",".join(fields[:cut]) + "\n" for fields in lines))
    ((_, rows),) = imported(old)
    assert len(rows) == len(lines) - 1
    assert {r.bound_by for r, _ in rows.values()} == {""}


OWN = {"schema": "1", "kernel": "gemm/a.b", "problem": "gemm/m1n1k1/f32/NN", "status": "ok", "threads": "1"}
OWN |= dict.fromkeys(("run_id", "suite", "op", "provider", "device", "device_name", "mode", "dtype", "numerics"), "x")
OWN |= {"layout": "", "reason": "", "time_s_median": "0.5"}


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        ("time_s_median", "nan", "line 2: time_s_median is 'nan', expected a finite number or nothing"),
        ("time_s_median", "1e999", "time_s_median is '1e999', expected a finite number"),
        ("time_s_median", "-1.0", "time_s_median is -1.0, expected seconds above 0"),
        ("time_s_median", "0.0", "time_s_median is 0.0, expected seconds above 0"),
        ("time_s_median", "٣", "time_s_median is '٣', expected a finite number"),
        ("time_s_min", "0.75", "time_s_min is 0.75, expected at most time_s_median, 0.5"),
        ("time_s_std", "-0.1", "time_s_std is -0.1, expected 0 or more"),
        ("time_s_std", "-inf", "time_s_std is '-inf', expected a finite number"),
        ("samples", "-3", "samples is '-3', expected a whole number from 0"),
        ("threads", "two", "threads is 'two', expected a whole number"),
        ("threads", "", "threads is empty; every row of kernelmark has it"),
        ("threads", "0", "threads is 0, expected a count from 1"),
        ("status", "fine", "status is 'fine', expected one of ok, unsupported, wrong"),
        ("schema", "2", "schema is 2, expected 1"),
        ("provider", None, "has no column provider"),
        ("threads", "99999999999999999999", "threads is '99999999999999999999', expected a whole number"),
        ("a,b", "1", "column 'a,b' is no name of its own"),
    ],
)
def test_a_csv_that_cannot_be_ours_is_refused_with_its_line(tmp_path, refused, column, value, found):
    fields = {**OWN, column: value}
    names = [f'"{name}"' if "," in name else name for name in fields if fields[name] is not None]
    (tmp_path / "own.csv").write_text(",".join(names) + "\n" + ",".join(v for v in fields.values() if v is not None))
    assert found in refused(tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("tail", "found"),
    [("a,b\n", "line 3: 2 values, expected"), ('"open', "cannot be read as CSV: unexpected end of data")],
)
def test_a_csv_that_was_cut_short_is_refused(tmp_path, refused, tail, found):
    text = ",".join(OWN) + "\n" + ",".join(OWN.values()) + "\n" + tail
    (tmp_path / "own.csv").write_text(text)
    assert found in refused(tmp_path / "own.csv")


def test_a_blank_line_at_the_end_of_a_csv_is_no_row(tmp_path, imported):
    (tmp_path / "own.csv").write_text(",".join(OWN) + "\n" + ",".join(OWN.values()) + "\n\n")
    ((_, rows),) = imported(tmp_path / "own.csv")
    assert len(rows) == 1


def test_a_csv_is_read_some_lines_at_a_time_and_added_in_one_commit(tmp_path, imported, monkeypatch):
    rows = [{**OWN, "problem": f"gemm/m{m}n1k1/f32/NN", "m": str(m)} for m in range(1, 8)]
    path = tmp_path / "own.csv"
    path.write_text("".join(",".join(line) + "\n" for line in ([*rows[0]], *(row.values() for row in rows))))
    sizes, add = [], Builder.add
    monkeypatch.setattr("kernelmark.bench.record.foreign.own_csv.CHUNK", 3)
    monkeypatch.setattr(Builder, "add", lambda self, columns: sizes.append(len(columns[0])) or add(self, columns))
    monkeypatch.setattr("pathlib.Path.read_bytes", None)
    ((_, found),) = imported(path)
    assert sizes == [3, 3, 1]
    assert [(r.problem, dims) for r, dims in found.values()] == [
        (row["problem"], {"m": m}) for m, row in enumerate(rows, 1)
    ]


def test_lines_with_and_without_quotes_are_read_as_csv_reader_reads_them(tmp_path, imported, refused):
    reasons = ["plain", 'a "word", twice', "two\nlines", "a,b", "", '"']
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, OWN, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({**OWN, "problem": f"p{i}", "reason": reason} for i, reason in enumerate(reasons))
    (tmp_path / "own.csv").write_bytes(out.getvalue().encode())
    ((_, found),) = imported(tmp_path / "own.csv")
    assert [r.reason for r, _ in found.values()] == [one_line(reason) for reason in reasons]
    (tmp_path / "own.csv").write_bytes(out.getvalue().encode() + b"a,b\n")
    assert "line 9: 2 values, expected" in refused(tmp_path / "own.csv")  # one of the rows has two lines


def test_a_wrong_number_far_down_is_named_with_its_line(tmp_path, refused):
    lines = [",".join(OWN), *(",".join({**OWN, "problem": f"p{i}"}.values()) for i in range(5))]
    lines.append(",".join({**OWN, "time_s_median": "1-2"}.values()))
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    assert refused(tmp_path / "own.csv").endswith("line 7: time_s_median is '1-2', expected a finite number or nothing")
