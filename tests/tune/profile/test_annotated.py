"""The page of `kernelmark profile --html`: each line of the sources, with what it does."""

from pathlib import Path

import pytest

from kernelmark.bench.emulator.build import CUDA
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.tune.profile import view
from kernelmark.bench.tune.profile.counted import Counts, LineCounts
from kernelmark.bench.tune.profile.view import Profile, sources, write_page

NAIVE, PANEL = "transpose/naive.cu", "gemm/panel.cuh"
LINES = (
    LineCounts(PANEL, 3, warp_instructions=25, wavefronts=8, least_wavefronts=8, loads={"shared 16": 25}),
    LineCounts(NAIVE, 2, warp_instructions=50, sectors=40, least_sectors=10, stores={"global 4": 50}),
    LineCounts(NAIVE, 4, warp_instructions=100),
    LineCounts("vector_types.h", 9, warp_instructions=1, fma=1),
)
COUNTS = Counts(
    "transpose/cuda.<naive>", "p", "", "sm_90a", (), LINES, LineCounts("", 0), 0, 0, 0, 0, (), 1, ("x < y",)
)


def test_sources_stand_whole_those_that_execute_most_first() -> None:
    found = sources(LINES)
    assert [(source.name, source.warp_instructions) for source in found] == [
        (NAIVE, 150),
        (PANEL, 25),
        ("vector_types.h", 1),
    ]
    for source in found[:2]:
        assert [line.text for line in source.lines] == Path(CUDA, source.name).read_text().splitlines()
    assert [line.number for line in found[2].lines] == [9], "of a header elsewhere only what was counted is known"


def test_lines_have_their_counts_their_heat_and_a_mark_above_the_least() -> None:
    naive, panel, _ = sources(LINES)
    assert [(line.heat, line.above_least) for line in naive.lines[:4]] == [
        (0, False),
        (50, True),
        (0, False),
        (100, False),
    ]
    assert {"50", "40", "4.00x", "store global 4"} <= set(naive.lines[1].cells)
    assert not naive.lines[0].cells
    assert not panel.lines[2].above_least


def test_page_needs_no_network_and_shows_text_as_text(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    write_page(Profile(COUNTS, no_machine="no <nvdisasm>"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "transpose/cuda.&lt;naive&gt; on p" in page
    assert "Not counted: x &lt; y" in page
    assert "No machine code: no &lt;nvdisasm&gt;" in page
    assert "template &lt;" in page
    assert "template <" not in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_without_jinja2_and_in_no_folder_the_complaint_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        view.require(tmp_path / "nowhere" / "page.html")
    monkeypatch.setattr(view, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="jinja2 is not installed; pip install"):
        view.require(tmp_path / "page.html")
