"""Defaults from kernelmark.toml and pyproject.toml."""

import json

import pytest

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.defaults import default_map


def shown(called, *words):
    """The problems that `show --json` prints."""
    return [row["problem"] for row in json.loads(called("show", "base", "--json", *words).out)["results"]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kernelmark.toml", "db = 'kept/results.db'\n[show]\nproblem = ['*m3*', '*m4*']\n"),
        ("pyproject.toml", "[tool.kernelmark]\ndb = 'kept/results.db'\n[tool.kernelmark.show]\nproblem = '*m3*'\n"),
    ],
)
def test_a_file_in_a_folder_above_gives_defaults_and_the_command_line_overrides_them(
    called, two_runs, tmp_path, monkeypatch, name, text
):
    (tmp_path / name).write_text(text)
    (tmp_path / "kept").mkdir()
    (tmp_path / "results.db").rename(tmp_path / "kept" / "results.db")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert shown(called) == ["copy/m3n5/f32"]
    assert shown(called, "--problem", "*m9*") == ["copy/m9n5/f32"]


def test_the_table_of_a_command_overrides_the_keys_above_it_and_reaches_no_other_command(tmp_path):
    verify, run = "[verify]\nkernels = ['a/*', 'b/*']\n", "[run]\nceilings = false\nthreads = [1, 2]\n"
    (tmp_path / "kernelmark.toml").write_text(f"max-time = 1\nkernels = 'gemm/*'\n{verify}{run}")
    found = default_map(cli.commands, tmp_path)
    assert found["run"] == {"max_time_s": "1", "kernels": ["gemm/*"], "ceilings": False, "threads": "1,2"}
    assert found["verify"] == {"kernels": ["a/*", "b/*"]}
    assert (found["watch"], found["report"]) == ({"max_time": "1"}, {})


def test_the_nearest_file_counts_alone_and_a_project_without_our_table_is_none(tmp_path):
    (tmp_path / "kernelmark.toml").write_text("seed = 1\n")
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.other]\nname = 'kernelmark'\n")
    (tmp_path / "pyproject.toml").write_text("[tool is no TOML, and no concern of ours\n")
    assert default_map(cli.commands, tmp_path / "project")["run"] == {"seed": "1"}
    (tmp_path / "project" / "pyproject.toml").write_text("[neither is this\n")
    assert default_map(cli.commands, tmp_path / "project")["run"] == {"seed": "1"}
    (tmp_path / "project" / "deep" / "kernelmark.toml").write_text("mode = 'hot'\n")
    assert default_map(cli.commands, tmp_path / "project" / "deep")["run"] == {"mode": "hot"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max_time = 1", "kernelmark.toml: max_time: is no option of any command that can have a default"),
        ("[show]\nmax-time = 1", "kernelmark.toml: [show] max-time: is no option of `show` that can have a default"),
        ("[runs]\ndelete = 'base'", "kernelmark.toml: [runs] delete: is no option of `runs` that can have a default"),
        ("[rum]\nseed = 1", "kernelmark.toml: [rum]: is no command; expected one of claims, "),
        ("[run]\nmax-time = 'x'", "kernelmark.toml: [run] max-time: is 'x', expected a number above 0"),
        ("[run]\nceilings = 'no'", "kernelmark.toml: [run] ceilings: is 'no', expected true or false"),
        ("[run]\nseed = true", "kernelmark.toml: [run] seed: is True, expected a string, a number or a list of them"),
        ("[run]\nmode = 'warm'", "kernelmark.toml: [run] mode: 'warm' is not one of"),
        ("seed = ", "kernelmark.toml: is no TOML: "),
    ],
)
def test_what_no_option_takes_is_refused_in_one_line_with_file_and_key(called, tmp_path, text, found):
    (tmp_path / "kernelmark.toml").write_text(text)
    assert f"{tmp_path}/{found}" in called("list").refusal
