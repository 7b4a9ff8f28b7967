"""Counts of our kernels that can be derived by hand, and the page that `profile` writes."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from kernelmark.bench.emulator import counts as emulated
from kernelmark.bench.emulator.build import CUDA, missing_tool
from kernelmark.bench.emulator.counters import cannot_count
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.tune.profile import view
from kernelmark.bench.tune.profile.counted import Counts, LineCounts, counts_of
from kernelmark.bench.tune.profile.view import Profile, sections, sources, write_page

pytestmark = pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))


@pytest.fixture
def counted(registry):

    def of(kernel_id, problem_id, device=H100, **options):
        kernel, problem = registry.kernels[kernel_id], registry.problem(problem_id)
        return counts_of(EmulatedCase(kernel, problem, kernel.tile_for(problem, H100), device), **options)

    return of


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*product(("tiled", "tma", "vectorised"), ("f32", "f16")), ("tiled", "f64"), ("unpadded", "f32")],
)
def test_transposition_out_of_place_takes_the_least_sectors_and_wavefronts(counted, name, dtype):
    profile = counted(f"transpose/cuda.{name}", f"transpose/m128n256/{dtype}/out")
    total, excess = profile.total, 16.5 if name == "unpadded" else 1
    assert total.sectors == total.least_sectors
    assert total.wavefronts == total.least_wavefronts * excess
    shown = next(row for row in view.totals(profile) if row[0] == "shared memory: wavefronts")[-1]
    assert shown == f"{excess:.2f}x" + " (bank conflicts; pad the tile)" * (name == "unpadded")
    assert total.bytes_read + total.bytes_written == profile.traffic_bytes
    assert profile.bytes_read_once + profile.bytes_written_once == profile.traffic_bytes
    if name in ("tiled", "vectorised"):
        assert total.active_lanes == 32 * total.warp_instructions


@pytest.mark.long
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_products_of_small_convolutions_have_no_bank_conflicts(counted, direction):
    total = counted("conv/cuda.implicit", f"conv/n1c16h14w14k32r3s3pad1/f32/nchw/{direction}").total
    assert total.wavefronts <= 1.02 * total.least_wavefronts


def test_naive_transposition_stores_a_sector_for_each_element(counted):
    profile = counted("transpose/cuda.naive", "transpose/m128n256/f32/out")
    assert profile.total.bytes_read == profile.traffic_bytes / 2
    assert profile.total.bytes_written == 8 * profile.traffic_bytes / 2


def test_a_product_has_as_many_multiply_adds_as_it_should(counted):
    if reason := cannot_count():
        pytest.skip(reason)
    profile = counted("gemm/cuda.async", "gemm/m256n512k64/f32/NN")
    assert profile.total.fma == 256 * 512 * 64 / 32
    (line,) = [line for line in profile.lines if line.fma]
    assert (line.file, line.active_lanes) == ("gemm/fragment.cuh", 256 * 512 * 64)


def test_a_sample_of_equal_blocks_has_the_counts_of_all_blocks(counted, monkeypatch):
    whole = counted("transpose/cuda.tiled", "transpose/m256n512/f32/out", every_block=True)
    monkeypatch.setattr(emulated, "CHEAP", 0)
    part = counted("transpose/cuda.tiled", "transpose/m256n512/f32/out")
    assert (part.launches[0].run_blocks, whole.launches[0].run_blocks) == (9, 128)
    assert (part.total, part.lines) == (whole.total, whole.lines)
    assert part.block_bytes_read == whole.block_bytes_read
    assert part.bytes_read_once is None


def test_a_sector_counts_for_each_launch_whose_blocks_touch_it(counted):
    profile = counted("gemm/cuda.splitk@BM=128,BN=128", "gemm/m128n128k2048/f32/NN")
    first, last = profile.launches
    assert (first.blocks, last.blocks) == (8, 64)
    slice_bytes, operands = 128 * 128 * 4, 2 * 128 * 2048 * 4
    assert profile.block_bytes_read == operands + 8 * slice_bytes, "each slice of sums is read by one block"
    assert profile.block_bytes_written == (8 + 1) * slice_bytes


SMALL_DEVICE = replace(H100, multiprocessors=2, sm_threads=256)
PANEL = 512 * 128 * 4  # bytes; a tile of 128 x 256 reads one of A and two of B


@pytest.mark.parametrize(
    ("l2_bytes", "panels"),
    [(0, 4 + 4 * 4), (10**9, 4 + 4), (4 * PANEL, 4 + 4 * 4), (8 * PANEL, 4 + 4)],
)
def test_memory_is_read_again_by_each_wave_that_does_not_find_it_in_the_cache(counted, l2_bytes, panels):
    """Each of four waves has two blocks, reads a panel of A and all four of B, and writes a panel of C."""
    device = replace(SMALL_DEVICE, l2_bytes=l2_bytes)
    (waves,) = counted("gemm/cuda.async@BM=128,BN=256", "gemm/m512n512k512/f32/NN", device).waves
    assert waves.blocks == (2,)
    assert (waves.bytes_read, waves.bytes_written) == (panels * PANEL, 4 * PANEL)


def test_a_sample_has_the_waves_of_all_blocks(counted, monkeypatch):
    words = ("gemm/cuda.tiled", "gemm/m160n160k64/f32/NT", replace(SMALL_DEVICE, l2_bytes=50_000))
    whole = counted(*words)
    monkeypatch.setattr(emulated, "CHEAP", 0)
    monkeypatch.setattr(emulated, "WHOLE", 9)
    part = counted(*words)
    assert (part.launches[0].run_blocks, whole.launches[0].run_blocks) == (9, 25)
    assert part.waves == whole.waves
    assert part.waves[0].bytes_read > part.block_bytes_read / 5


def test_no_cache_does_better_than_one_that_keeps_everything(counted):
    profile = counted("transpose/cuda.c2r_fused", "transpose/m20n516/f32/in")
    best = profile.bytes_read_once + profile.bytes_written_once
    assert profile.waves
    assert all(waves.bytes_read + waves.bytes_written >= best for waves in profile.waves)


def test_without_regular_footprints_no_waves_are_modelled(counted, monkeypatch):
    monkeypatch.setattr(emulated, "CHEAP", 0)
    profile = counted("transpose/cuda.tma", "transpose/m1000n1992/f32/out", replace(H100, multiprocessors=2))
    assert profile.waves == ()
    assert any("by waves" in text for text in profile.missing)


def test_lines_add_up_to_the_total(counted):
    profile = counted("transpose/cuda.tiled", "transpose/m33n70/f32/out")
    for name in ("warp_instructions", "active_lanes", "sectors", "wavefronts", "bytes_read", "bytes_written"):
        assert getattr(profile.total, name) == sum(getattr(line, name) for line in profile.lines)
    assert profile.total.active_lanes < 32 * profile.total.warp_instructions, "ragged edges leave lanes idle"
    assert "transpose/tiled.cu:20" in "\n".join(sections(Profile(profile)))


NAIVE, ANNOTATED_PANEL = "transpose/naive.cu", "gemm/panel.cuh"
LINES = (
    LineCounts(ANNOTATED_PANEL, 3, warp_instructions=25, wavefronts=8, least_wavefronts=8, loads={"shared 16": 25}),
    LineCounts(NAIVE, 2, warp_instructions=50, sectors=40, least_sectors=10, stores={"global 4": 50}),
    LineCounts(NAIVE, 4, warp_instructions=100),
    LineCounts("vector_types.h", 9, warp_instructions=1, fma=1),
)
COUNTS = Counts(
    "transpose/cuda.<naive>", "p", "", "sm_90a", (), LINES, LineCounts("", 0), 0, 0, 0, 0, (), 1, ("x < y",)
)


def test_sources_are_shown_whole_the_most_executed_first() -> None:
    listed = sources(LINES)
    known = [(NAIVE, 150), (ANNOTATED_PANEL, 25), ("vector_types.h", 1)]
    assert [(source.name, source.warp_instructions) for source in listed] == known
    for source in listed[:2]:
        assert [line.text for line in source.lines] == Path(CUDA, source.name).read_text().splitlines()
    assert [line.number for line in listed[2].lines] == [9], "a header from elsewhere has only the counted line"


def test_lines_have_their_counts_their_heat_and_a_mark_above_the_least() -> None:
    naive, panel, _ = sources(LINES)
    assert [line.heat for line in naive.lines[:4]] == [0, 50, 0, 100]
    assert [line.above_least for line in naive.lines[:4]] == [False, True, False, False]
    assert {"50", "40", "4.00x", "store global 4"} <= set(naive.lines[1].cells)
    assert not naive.lines[0].cells
    assert not panel.lines[2].above_least


def test_page_needs_no_network_and_escapes_text(tmp_path: Path) -> None:
    write_page(Profile(COUNTS, no_machine="no <nvdisasm>"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "transpose/cuda.&lt;naive&gt; on p" in page
    assert "Not counted: x &lt; y" in page
    assert "No machine code: no &lt;nvdisasm&gt;" in page
    assert "template &lt;" in page
    assert "template <" not in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_page_without_jinja2_or_in_a_missing_folder_is_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        view.require(tmp_path / "nowhere" / "page.html")
    monkeypatch.setattr(view, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="jinja2 is not installed; pip install"):
        view.require(tmp_path / "page.html")
