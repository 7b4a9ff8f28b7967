"""Winograd's CUDA kernels: what they refuse, how plans cover the output, and what the sweep does not reach."""

import math
from typing import Any

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase, entries
from kernelmark.bench.measure.occupancy import occupancy, typical
from kernelmark.bench.plan.kernel import KernelCall, Scratch
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, REGISTRY, cases, lean, refusal

NAMES = F2, F4, FUSED4 = "conv/cuda.winograd", "conv/cuda.winograd4", "conv/cuda.winograd4_fused"
VARIANTS = [f"{layout}/{direction}" for layout in ("nchw", "nhwc") for direction in ("fprop", "dgrad")]
VGG3 = "conv/n32c256h56w56k256r3s3pad1/f32/nchw/fprop"


def calls(case: EmulatedCase, part: str) -> list[KernelCall]:
    """The plan's launches of the entries that begin so."""
    return [call for entry, call in case.calls if entry.startswith(part)]


def outputs(case: EmulatedCase, side: int) -> tuple[int, int]:
    """Tiles of `side` x `side` outputs, and output channels of a group."""
    p: Any = case.problem
    height, width, channels = (p.h, p.w, p.c) if p.direction == "dgrad" else (p.p, p.q, p.k)
    return p.n * math.ceil(height / side) * math.ceil(width / side), channels // p.groups


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("conv/n1c2h9w9k2r3s3stride2/f32/nchw/fprop", "stride is 2, expected 1"),
        ("conv/n1c2h9w9k2r3s3stride1x2/f32/nhwc/dgrad", "stride is 1x2, expected 1"),
        ("conv/n1c2h9w9k2r3s3/f32/nchw/fprop/dil2", "dilation is 2, expected 1"),
        ("conv/n1c2h9w9k2r1s3/f32/nchw/fprop", "filter is 1x3, expected 3x3"),
        ("conv/n1c2h9w9k2r5s5/f32/nchw/dgrad", "filter is 5x5, expected 3x3"),
        ("conv/n1c524281h3w3k1r3s3/f32/nchw/fprop", "channels are 524281, expected at most 524280"),
        ("conv/n1c1h65536w65536k1r3s3/f32/nchw/fprop", "the padded input has 4294967296 places"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(name: str, problem: str, reason: str) -> None:
    assert refusal(name, problem).startswith(reason)


def test_more_groups_than_the_grid_has_room_for_are_refused() -> None:
    problem = "conv/n1c1821h3w3k1821r3s3/f32/nchw/fprop/g1821"
    assert "groups are 1821, expected at most 1820" in refusal(F4, problem)
    assert refusal(F2, problem) == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_filters_gradient_lies_outside(name: str) -> None:
    assert "has no wgrad path" in refusal(name, VGG3.replace("fprop", "wgrad"))


@pytest.mark.parametrize(("name", "saved"), [(F2, 2.25), (F4, 4.0), (FUSED4, 4.0)])
def test_executed_products_are_a_fraction_of_the_nominal_ones_and_transforms_come_on_top(
    name: str, saved: float
) -> None:
    problem, executed = REGISTRY.problem(VGG3), CUDA[name].executed_flop
    products = problem.flop / saved
    assert products < executed(problem) < 1.1 * products


@pytest.mark.parametrize("name", NAMES)
def test_both_directions_of_a_symmetric_problem_execute_the_same(name: str) -> None:
    executed = CUDA[name].executed_flop
    assert executed(REGISTRY.problem(VGG3)) == executed(REGISTRY.problem(VGG3.replace("fprop", "dgrad")))


@pytest.mark.parametrize("pad", ["0", "1", "2", "0-1x2-0", "3"])
def test_an_inputs_gradient_is_a_convolution_whose_padding_complements_the_other(pad: str) -> None:
    problem: Any = REGISTRY.problem(f"conv/n1c2h5w6k3r3s3pad{pad}/f32/nchw/dgrad")
    (call,) = calls(cases(F2, problem.id)[-1], "winograd_fused")
    n, c, h, w, k, p, q, top, left = call.args[3:12]
    assert (top, left) == (2 - problem.pad_h.before, 2 - problem.pad_w.before)
    assert (n, c, h, w, k, p, q) == (1, 3, problem.p, problem.q, 2, 5, 6)
    assert p == h + top + (2 - problem.pad_h.after) - 2


@pytest.mark.parametrize(
    "problem", [VGG3, "conv/n3c5h7w9k65r3s3/f32/nhwc/fprop", "conv/n1c8h3w3k6r3s3/f32/nchw/dgrad/g2"]
)
def test_every_tile_and_filter_has_one_block_of_the_fused_kernel(problem: str) -> None:
    for case in cases(F2, problem):
        (call,) = calls(case, "winograd_fused")
        (tiles, channels), width = outputs(case, 2), case.tile.BK
        assert call.grid[:2] == (math.ceil(tiles / 32) * math.ceil(channels / width), case.problem.groups)
        assert call.args[-2] == math.ceil(channels / width) * width


@pytest.mark.parametrize(
    ("problem", "slices"),
    [
        (VGG3, 1),
        ("conv/n1c256h14w14k256r3s3pad1/f32/nchw/fprop", 8),  # 8 blocks each, of 132
        ("conv/n1c100h14w14k256r3s3pad1/f32/nhwc/dgrad", 8),  # of 256 filters, which it sums over
        ("conv/n1c8h3w3k6r3s3/f32/nchw/dgrad/g2", 1),
    ],
)
def test_slices_of_channels_fill_the_device_once(problem: str, slices: int) -> None:
    for case in cases(F2, problem):
        (call,), sums = calls(case, "winograd_fused"), calls(case, "conv_sum")
        p = case.problem
        depth, channels = call.args[-1], (p.c if p.direction == "fprop" else p.k) // p.groups
        assert (call.grid[2], len(sums)) == (slices, slices > 1)
        assert depth % 8 == 0
        assert depth * (slices - 1) < channels <= depth * slices


@pytest.mark.parametrize(
    "problem", [VGG3, "conv/n128c64h224w224k64r3s3pad1/f32/nchw/fprop", "conv/n7c9h23w41k70r3s3/f32/nhwc/dgrad"]
)
def test_chunks_follow_one_another_through_all_tiles_and_keep_to_their_memory(problem: str) -> None:
    for case in cases(F4, problem):
        covered, sizes, p = 0, set(), case.problem
        for call in calls(case, "winograd4_input"):
            *_, first, ldt = call.args
            assert first == covered
            covered += ldt
            sizes |= {arg for arg in call.args if isinstance(arg, Scratch)}
        for call in calls(case, "winograd4_output"):
            sizes |= {arg for arg in call.args if isinstance(arg, Scratch)}
        assert 0 <= covered - outputs(case, 4)[0] < 4
        assert len(sizes) == 2  # every chunk has the same two buffers
        least = 4 * 36 * 32 * (p.c + p.k + 3 * p.groups)
        assert sum(scratch.nbytes for scratch in sizes) <= max(1024 * case.tile.KIB, least)


@pytest.mark.parametrize(
    "problem", [VGG3, "conv/n128c64h224w224k64r3s3pad1/f32/nchw/fprop", "conv/n7c9h23w41k70r3s3/f32/nhwc/dgrad"]
)
def test_blocks_of_fused_f4_own_48_tiles_of_a_chunk_and_64_filters_and_have_room_for_what_they_keep(
    problem: str,
) -> None:
    for case in cases(FUSED4, problem):
        tiles, channels = outputs(case, 4)
        covered = 0
        for made, call in zip(calls(case, "winograd4_input"), calls(case, "winograd4_fused"), strict=True):
            *_, first, ldk, ldt = call.args
            assert (made.args[1], made.args[-2:]) == (call.args[1], (first, ldt))
            assert (first, ldk, ldt % 48) == (covered, math.ceil(channels / 64) * 64, 0)
            assert call.grid == (ldk // 64 * ldt // 48, case.problem.groups)
            assert call.args[2].nbytes >= 4 * 16 * 64 * 48 * math.prod(call.grid)
            covered += ldt
        assert 0 <= covered - tiles < 48


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ("n2c17h9w8k70r3s3pad1", ""),
        ("n1c70h6w7k9r3s3pad1-2x0-3", ""),
        ("n3c6h17w15k4r3s3pad0-3x2-0", "/g2"),
        ("n1c3h4w6k3r3s3pad5x4", ""),
        ("n1c66h3w12k68r3s3pad1", "/g2"),
    ],
)
def test_tiles_of_every_width_are_right_over_edges_and_more_padding_than_the_filter_reaches(
    name: str, variant: str, sizes: str, groups: str
) -> None:
    assert not wrong_in_emulator(cases(name, f"conv/{sizes}/f32/{variant}{groups}"))


@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("name", "resident"), [(F2, {64: 1, 32: 2}), (F4, {128: 2, 64: 3}), (FUSED4, {4: 1, 3: 1})])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_variant_spills_and_as_many_blocks_are_resident_as_are_meant_to_be(
    name: str, resident: dict[int, int], variant: str, arch: str
) -> None:
    if not CUDA[name].runs_on(arch):
        pytest.skip(f"{name} does not run on {arch}")
    every = cases(name, f"conv/n1c70h9w9k70r3s3/f32/{variant}")
    cubin = lean(name, entries(every), arch)
    for case in every:
        for entry, call in case.calls:
            if entry.startswith(("winograd_fused", "winograd4_products", "winograd4_fused")):
                used = cubin.resources[entry]
                shared = used.static_shared_bytes + call.shared_bytes
                blocks = occupancy(typical(arch), call.block, used.registers, shared).blocks_per_sm
                assert used.spill_bytes == 0
                assert blocks >= resident[vars(case.tile)[{F2: "BK", F4: "BM", FUSED4: "STAGES"}[name]]]
