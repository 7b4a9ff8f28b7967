"""What a command is given: numbers that are finite, and files that are files."""

import os
from contextlib import suppress
from pathlib import Path

import click
import pytest

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.options import Read
from support.rows import begin, fail

NUMBERS = ("nan", "inf", "-inf", "1e999", "-1", "")
#: Commands whose options take a number that need not be whole, with what else each needs.
TAKING = [
    ("run", "copy/m4n4/f32", "--max-time"),
    ("run", "copy/m4n4/f32", "--timeout"),
    ("run", "copy/m4n4/f32", "--rel-ci"),
    ("run", "copy/m4n4/f32", "--spread"),
    ("verify", "copy/m4n4/f32", "--timeout"),
    ("compare", "one", "other", "--fail-slower"),
    ("compare", "one", "other", "--margin"),
    ("watch", "a.cu", "copy/m4n4/f32", "--max-time"),
]


@pytest.mark.parametrize("words", TAKING, ids=[" ".join(words[::2]) for words in TAKING])
def test_a_number_that_is_not_finite_is_refused_in_one_line(called, tmp_path, words):
    (tmp_path / "a.cu").touch()
    for number in NUMBERS:
        assert f"'{words[-1]}': is {number!r}, expected " in called(*words[:-1], f"{words[-1]}={number}").refusal


def test_no_option_of_any_command_reads_a_number_that_is_not_finite():
    params = [(name, param) for name, command in cli.commands.items() for param in command.params]
    assert not {type(param.type) for _, param in params} & {click.FLOAT.__class__, click.FloatRange}
    read = [(name, param) for name, param in params if isinstance(param.type, Read)]
    assert {name for name, _ in read} >= {"run", "verify", "tune", "watch", "compare", "scaling"}
    for name, param in read:
        for text in ("nan", "inf", "-inf", "1e999"):
            with suppress(ValueError):
                assert not isinstance(param.type._parse(text), float), f"{name} {param.opts} {text}"


#: What each is called; a folder also by click, which looks first.
KINDS = {"pipe": ("named pipe",), "folder": ("a folder", "is a directory"), "device": ("a device",)}


def no_file(folder: Path, kind: str) -> str:
    if kind == "pipe":
        os.mkfifo(folder / "found.toml")
    elif kind == "folder":
        (folder / "found.toml").mkdir()
    else:
        (folder / "found.toml").symlink_to("/dev/zero")
    return "found.toml"


@pytest.fixture
def exported(called, two_runs):
    """Call `export` of a store with a run."""
    return lambda *words: called("export", "base", "--db", two_runs, *words)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "{}"),
        ("show", "--db", "{}"),
        ("run", "copy/m4n4/f32", "--db", "{}"),
        ("import", "{}"),
        ("claims", "--prices", "{}"),
        ("run", "copy/m4n4/f32", "--csv", "{}"),
    ],
    ids=["suite", "store", "new-store", "import", "prices", "csv"],
)
def test_what_is_no_file_is_refused_before_it_is_opened(called, tmp_path, kind, words):
    name = no_file(tmp_path, kind)
    line = called(*(word.format(name) for word in words)).refusal
    assert name in line
    assert any(word in line for word in KINDS[kind])


@pytest.mark.parametrize("style", ["csv", "parquet", "latex", "json"])
def test_an_export_into_what_is_no_file_is_refused(exported, tmp_path, style):
    pytest.importorskip("pyarrow")
    line = exported("--format", style, "-o", no_file(tmp_path, "pipe")).refusal
    assert line == "kernelmark: found.toml: is a named pipe, expected a file"


def test_spreadsheets_are_csv_that_a_switch_asks_for(exported):
    assert exported("--spreadsheet").out == exported().out
    for style in ("json", "markdown", "latex", "parquet"):
        assert f"--spreadsheet: changes CSV, not {style}" in exported("--format", style, "--spreadsheet").refusal


def test_what_others_wrote_is_no_formula_and_no_markup_in_what_is_exported(kernelmark, store):
    begin(store)
    fail(store, "copy/m2n2/f32", "copy/some.base", reason="=1+1 | <b>bold</b> [here](x)")
    store.close()
    export = ("export", "--db", str(store.path))
    assert ",=1+1 | <b>bold</b> [here](x)," in kernelmark(*export).stdout
    assert ",'=1+1 | <b>bold</b> [here](x)," in kernelmark(*export, "--spreadsheet").stdout
    shown = kernelmark(*export, "--format", "markdown").stdout
    assert "=1+1" in shown
    assert not any(markup in shown for markup in ("1 | <", "<b>", " [here](x)"))
