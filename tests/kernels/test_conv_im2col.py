"""Our im2col: columns only where they are needed, in passes that scratch and grid hold, packed where rows allow."""

import pytest

from kernelmark.bench.plan.kernel import KernelCall, Scratch
from support.kernels import DIRECTIONS, chosen


def calls(sizes: str, variant: str, options: str = "") -> list[tuple[str, KernelCall]]:
    """The launches under the tile that a run takes; variant is `nchw/fprop`."""
    return chosen("conv/cuda.im2col", f"conv/{sizes}/f32/{variant}/{options}".rstrip("/")).calls


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_pointwise_convolution_needs_no_columns(direction: str) -> None:
    for layout in ("nchw", "nhwc"):
        made = calls("n4c64h14w14k96r1s1", f"{layout}/{direction}")
        assert not any("im2col" in entry or "col2im" in entry for entry, _ in made)
        assert not any(arg.name == "columns" for _, call in made for arg in call.args if isinstance(arg, Scratch))
    assert "conv_im2col_nchw" in dict(calls("n4c64h14w14k96r1s1stride2", "nchw/fprop"))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_images_of_which_scratch_holds_not_all_are_taken_in_passes(layout: str, direction: str) -> None:
    made = calls("n128c64h112w112k64r3s3pad1", f"{layout}/{direction}")
    scratch = {arg for _, call in made for arg in call.args if isinstance(arg, Scratch) and arg.name == "columns"}
    assert len(scratch) == 1
    assert max(one.nbytes for one in scratch) <= 2**29
    moved = [call for entry, call in made if "im2col" in entry or "col2im" in entry]
    image = 2**29 // (4 * 576 * 112 * 112)
    assert [call.args[2] for call in moved] == list(range(0, 128, image))


def test_packs_are_moved_where_rows_are_whole_vectors_or_padded_to_them() -> None:
    def widths(text: str, variant: str) -> tuple[str, ...]:
        entry = next(entry for entry, _ in calls(text, variant) if "columns" in entry)
        return tuple(entry.split(", ")[8:10])

    assert widths("n1c8h7w7k8r3s3pad1", "nchw/fprop") == ("4", "1")  # 49 pixels, in columns padded to 52
    assert widths("n1c8h8w8k8r3s3pad1", "nchw/fprop") == ("4", "4")
    assert widths("n1c8h7w7k8r1s1", "nchw/fprop") == ("1", "1")  # the columns are x itself
    assert widths("n1c8h7w7k8r3s3pad1", "nhwc/wgrad") == ("4", "4")
    assert widths("n1c8h7w7k6r3s3pad1", "nhwc/wgrad") == ("1", "4")


def test_a_wide_grid_of_images_and_groups_is_cut_into_passes() -> None:
    made = calls("n300c512h2w2k512r1s1stride2", "nchw/fprop", "g512")
    depths = [call.grid[2] for entry, call in made if "columns" in entry]  # type: ignore[index]
    assert max(depths) <= 65535
    assert sum(depths) == 300 * 512
