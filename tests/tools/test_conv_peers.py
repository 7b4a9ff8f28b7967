"""Tables of our convolutions against oneDNN: the pairs that are compared, the notes, and layers without a ratio."""

import pytest

import conv_peers
from kernelmark.bench.measure.present import module_missing
from support.rows import DISTURBED, begin, fail, put
from support.texts import csv_rows
from support.tools import needed

ONEDNN, DIRECT, IM2COL = "conv/torch.conv2d", "conv/numba.direct", "conv/cpu.im2col"
LAYER = "conv/n1c{}h14w14k16r3s3pad1/f32/nchw/{}"
SUITE = """
[[sweep]]
op = "conv"
network = "{}"
dtype = ["f32"]
n = [1]
direction = {}
axes = ["c", "h", "w", "k", "r", "s", "pad"]
points = [[8, 14, 14, 16, 3, 3, 1], [16, 14, 14, 16, 3, 3, 1]]
"""


@pytest.fixture
def call(store, tmp_path, capsys):
    suite = tmp_path / "peers.toml"
    suite.write_text(SUITE.format("one", '["fprop", "dgrad"]') + SUITE.format("two", '["fprop"]'), encoding="utf-8")

    def call(*words, status=0):
        assert conv_peers.main(["--db", str(store.path), "--suite", str(suite), *words]) == status
        return capsys.readouterr()

    return call


@pytest.fixture
def layers(call, tmp_path):
    def layers(*words):
        call("--layers", str(tmp_path / "layers.csv"), *words)
        return {row["layer"]: row for row in csv_rows(tmp_path / "layers.csv")}

    return layers


def times(store, c, direction="fprop", **kernels):
    """Add rows of one job, whose samples scatter equally, by 1 %."""
    ids = {"onednn": ONEDNN, "direct": DIRECT, "im2col": IM2COL, "plugin": "conv/mine.fast"}
    for name, seconds in kernels.items():
        taken = [seconds * (1 + 0.01 * (i % 3 - 1)) for i in range(12)]
        put(store, LAYER.format(c, direction), ids[name], seconds, taken=taken, gflop_per_s=12.3)


def rows(page, first):
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    return [cells for cells in table if cells[0] == first]


def test_the_fastest_of_our_kernels_is_compared_on_each_layer_and_in_the_mean(begun, call, layers):
    times(begun, 8, onednn=1e-3, direct=0.5e-3, im2col=2e-3, plugin=0.1e-3)
    times(begun, 16, onednn=8e-3, direct=9e-3, im2col=1e-3)
    page = call("--network", "two").out
    (summary,) = rows(page, "two")
    assert summary[1:5] == ["1", "nchw", "fprop", "2"]
    assert summary[5:] == ["4x [4, 4]", "c8h14w14k16r3s3pad1", "2x [2, 2]"]
    eight, sixteen = layers("--network", "two").values()
    assert list(eight.values()) == [
        *("two", "1", "nchw", "fprop", "c8h14w14k16r3s3pad1", "numba.direct"),
        *("2.00", "2.00", "2.00", "12.3", "no"),
    ]
    assert (sixteen["kernel"], sixteen["ratio"]) == ("cpu.im2col", "8.00")
    assert "do not come with kernelmark: conv/mine.fast." in page
    assert "Partial" not in page
    assert rows(page, "one") == []


def test_the_interval_of_a_mean_has_the_means_of_the_ends_as_ends():
    mean = conv_peers.geometric_mean([conv_peers.Ratio(2, 1, 4), conv_peers.Ratio(8, 4, 9, in_turn=False)])
    assert mean == pytest.approx((4, 2, 6, False, False))
    assert conv_peers.geometric_mean([conv_peers.Ratio(2, 1, 4), conv_peers.Ratio(8)])[:3] == (4, None, None)


def test_layers_without_a_ratio_and_rows_without_a_time_are_listed_with_the_reason(begun, call):
    times(begun, 8, onednn=1e-3)
    fail(begun, LAYER.format(8, "fprop"), IM2COL, "unsupported", "r is 3, expected 1 | 2")
    times(begun, 16, direct=1e-3)
    fail(begun, LAYER.format(16, "fprop"), ONEDNN, "failed", "RuntimeError: no primitive")
    times(begun, 16, "dgrad", onednn=1e-3, direct=0.5e-3)
    page = call().out
    assert "Partial: 5 of 6 layers have no ratio" in page
    assert [cells[3:5] for cells in rows(page, "one")] == [["fprop", "0 of 2"], ["dgrad", "1 of 2"]]
    for line in (
        "- one, n = 1, nchw, fprop: c8h14w14k16r3s3pad1: none of our kernels has a time",
        "- one, n = 1, nchw, fprop: c16h14w14k16r3s3pad1: conv/torch.conv2d failed: RuntimeError: no primitive",
        "- one, n = 1, nchw, dgrad: c8h14w14k16r3s3pad1: no row has a time",
        f"- `{IM2COL}`, unsupported on 1 problem, the first `{LAYER.format(8, 'fprop')}`: r is 3, expected 1 \\| 2",
        f"- `{ONEDNN}`, failed on 1 problem, the first `{LAYER.format(16, 'fprop')}`: RuntimeError: no primitive",
    ):
        assert line in page.splitlines()


def test_ties_and_noise_are_marked(begun, call, layers):
    times(begun, 8, onednn=1e-3)
    put(begun, LAYER.format(8, "fprop"), DIRECT, taken=[1e-3 * (1 + 0.1 * (i % 2 - 0.5)) for i in range(12)])
    put(begun, LAYER.format(16, "fprop"), ONEDNN, taken=[1e-3] * 12, disturbed=DISTURBED)
    put(begun, LAYER.format(16, "fprop"), DIRECT, taken=[5e-4] * 12)
    page = call("--network", "two").out
    tie, noisy = layers("--network", "two").values()
    assert float(tie["low"]) < 1 < float(tie["high"])
    assert (noisy["ratio"], tie["noisy"], noisy["noisy"]) == ("2.00", "no", "yes")
    assert rows(page, "two")[0][7].endswith(" (tie)")
    assert "NOISY: 1 of 4 cases was disturbed" in page


def test_bad_input_is_refused_in_one_line(store, call):
    def refusal(*words):
        printed = call(*words, status=2)
        (line,) = printed.err.splitlines()
        assert printed.out == ""
        return line

    assert "has timed it" in refusal()
    begin(store)
    times(store, 8, direct=1e-3)
    assert refusal("--network", "three") == (
        "conv_peers: --network three: is not a network of peers; expected one of one, two"
    )
    assert "'zz': is not a run" in refusal("--run", "zz")
    assert f"{ONEDNN} has no time (it has no row)" in refusal()
    assert "there is no store" in refusal("--db", "none.db")
    assert "founding: has no convolution" in refusal("--suite", "founding", "--run", "r1")


def test_a_run_of_a_tiny_layer_is_read(layers, tmp_path, called):
    needed(module_missing("torch"))
    (tmp_path / "peers.toml").write_text(SUITE.format("one", '["fprop"]').replace(", [16, 14, 14, 16, 3, 3, 1]", ""))
    words = ("run", "peers.toml", "--mode", "hot", "--max-time", "0.01", "--no-ceilings", "--db", "r.db")
    done = called(*words, "--kernels", ONEDNN, "--kernels", IM2COL)
    assert done.status == 0, done.err
    (row,) = layers("--db", str(tmp_path / "r.db"), "--suite", str(tmp_path / "peers.toml")).values()
    assert row["kernel"] == "cpu.im2col"
    assert float(row["ratio"]) > 0
