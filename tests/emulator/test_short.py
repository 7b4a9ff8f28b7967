"""The cases that the short run keeps: the table, the rule beside it, and how the table is made."""

from collections.abc import Sequence

import pytest

from emulator import cover, short
from emulator.mutation import Mutant, mutants
from emulator.proof import Fate, all_cases, headers_by_name, included, kernels_by_source
from kernelmark.bench.emulator.sweep import Case
from kernelmark.bench.plan.discovery import discover

TILED = "gemm/tiled.cu"
EVERY = all_cases()["gemm/cuda.tiled"]
FIRST = short.name(EVERY[0])


def row(names: Sequence[str] = (FIRST,)) -> short.Row:
    return short.row(TILED, 1, names, ["a survivor"])


def kept_of_tiled(rows: dict[str, short.Row]) -> set[str]:
    return {name for name in short.kept(rows) if name.startswith("gemm/cuda.tiled ")}


@pytest.mark.long
def test_every_source_and_header_has_a_row_as_of_now() -> None:
    files, rows = {*kernels_by_source(discover()), *headers_by_name(discover())}, short.load()
    assert rows.keys() == files
    stale = sorted(file for file in files if not short.is_fresh(rows, file))
    assert not stale, f"{short.TABLE.name} is not as of now; run: make mutants-table"


def test_kernel_without_a_row_keeps_all_its_cases() -> None:
    assert kept_of_tiled({}) == {short.name(case) for case in EVERY}


def test_kernel_keeps_what_mutants_of_its_source_or_of_a_header_need_and_a_case_of_each_variant() -> None:
    last = short.name(EVERY[-1])
    header = short.Row("as of some other day", 1, {"gemm/cuda.tiled": [last.partition(" ")[2]]}, [])
    found = kept_of_tiled({TILED: row(), "common.cuh": header})
    assert {FIRST, last} <= found
    assert len(found) <= 5
    layouts = [case.problem.layout for case in EVERY if short.name(case) in found]
    assert set(layouts) == {"NN", "NT", "TN", "TT"}


@pytest.mark.parametrize("changed", [TILED, "common.cuh"])
def test_kernel_whose_source_or_header_has_changed_keeps_all_its_cases(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, texts = {TILED: row()}, included(TILED)
    assert len(kept_of_tiled(rows)) < len(EVERY)
    texts[changed] += "int more;\n"
    monkeypatch.setattr(short, "included", lambda file: texts if file == TILED else included(file))
    assert len(kept_of_tiled(rows)) == len(EVERY)


def test_comment_changes_nothing_and_a_waiver_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {TILED: row()}
    for line, fresh in (("  // why", True), ("  // emulator: allow race: why", False)):
        texts = included(TILED) | {TILED: included(TILED)[TILED] + f"\n{line}\n"}
        monkeypatch.setattr(short, "included", lambda _, texts=texts: texts)
        assert short.is_fresh(rows, TILED) == fresh


def test_row_of_a_kernel_that_is_gone_is_not_fresh() -> None:
    gone = short.Row(row().digest, 1, {"gemm/cuda.gone": ["x"]}, [])
    assert not short.is_fresh({"common.cuh": gone}, "common.cuh")


def test_table_is_read_as_it_was_written(tmp_path) -> None:
    rows = {TILED: row()}
    short.save(rows, tmp_path / "t.json")
    assert short.load(tmp_path / "t.json") == rows
    assert short.load(tmp_path / "none.json") == {}


#: Which mutants each of four cases finds.
FINDS = ["a", "ab", "bc", "cd"]


def chosen(monkeypatch: pytest.MonkeyPatch, text: str) -> cover.Cover:
    """The cover of mutants, a letter each."""
    by_case = dict(zip(map(short.name, EVERY), FINDS, strict=False))

    def fate(file: str, mutant: Mutant, plans: list[list[Case]]) -> Fate:
        return Fate(file, mutant, case=next((c for (c,) in plans if mutant.text in by_case[short.name(c)]), None))

    monkeypatch.setattr(cover, "fate", fate)
    letters = [Mutant("kind", 1, "change", letter) for letter in text]
    return cover.cover(TILED, letters, {short.name(case): case for case in EVERY[:4]})


def indices(found: cover.Cover) -> set[int]:
    return {[short.name(case) for case in EVERY].index(name) for name in found.found}


def test_case_that_others_make_needless_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert indices(chosen(monkeypatch, "abd")) == {1, 3}


def test_all_mutants_that_a_case_finds_are_found_and_the_others_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen(monkeypatch, "abcde")
    assert {letter for index in indices(found) for letter in FINDS[index]} == set("abcd")
    assert [mutant.text for mutant in found.survivors] == ["e"]


def test_case_that_was_chosen_is_tried_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert indices(chosen(monkeypatch, "ca")) == {0, 2}
    assert indices(chosen(monkeypatch, "db")) == {1, 3}


def test_row_counts_the_mutants_of_the_text_as_it_stands() -> None:
    rows = short.load()
    assert rows.keys() <= {*kernels_by_source(discover()), *headers_by_name(discover())}
    for file in rows:
        if short.is_fresh(rows, file):
            assert rows[file].mutants == len(list(mutants(included(file)[file])))
