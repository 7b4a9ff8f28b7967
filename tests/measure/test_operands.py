"""Operands: how they are drawn, laid out and guarded, and the parts of an array on several GPUs."""

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.draw import LARGEST_INT, SPECIAL, Draw, drawn, poison
from kernelmark.bench.measure.multi_gpu import Spread
from kernelmark.bench.measure.operands import Operands, ScratchBuffers, loaded
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import DTYPES, INTEGERS, numpy_dtype
from kernelmark.bench.plan.operation import Operand


def _loaded(text, seed=1):
    return loaded(discover().problem(text), Cpu(), seed)


@pytest.mark.parametrize(
    ("dtype", "bits", "low"), [("f32", 24, 2**-7), ("f64", 53, 2**-10), ("f16", 11, 2**-14), ("bf16", 8, 2**-14)]
)
def test_values_are_uniform_in_all_bits_of_their_type(dtype, bits, low):
    values = drawn(np.random.default_rng(0), (50_000,), Operand("a", (50_000,), dtype, "in")).astype(np.float64)
    assert np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0]) == pytest.approx([-1, -0.5, 0, 0.5, 1], abs=0.02)
    mantissas = np.ldexp(np.frexp(values[abs(values) >= low])[0], bits)
    assert (mantissas % 1 == 0).all()
    assert np.mean(mantissas % 2) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("problem", ["gemm/m200n3k99/{}/NN/lda+3", "copy/m200n99/{}"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_other_distributions_are_normal_zeros_or_small_whole_numbers_and_leave_verification_as_it_is(problem, dtype):
    draw, _ = _loaded(problem.format(dtype))
    usual = Draw(discover().problem(problem.format(dtype)), 1)
    by_distribution = {}
    for distribution in ("normal", "zeros", "ints"):
        draw.redraw(distribution)
        by_distribution[distribution] = draw.views("C")["a"].astype(np.float64)
    assert (by_distribution["normal"].mean(), by_distribution["normal"].std()) == pytest.approx((0, 1), abs=0.05)
    assert not by_distribution["zeros"].any()
    assert np.unique(by_distribution["ints"]).tolist() == list(range(-LARGEST_INT, LARGEST_INT + 1))
    draw.redraw()
    usual.redraw()
    usual.redraw()
    assert all(draw.is_held(values, name) for name, values in usual.flat.items())


@pytest.mark.parametrize(
    ("problem", "largest"),
    [
        *((problem, 1e3) for problem in ("copy/m2n{}/f32", "gemm/m2n3k{}/f64/NN")),
        ("gemm/m2n3k{}/f16/NN/lda+3", 16),
        ("conv/n1c{}h2w2k1r2s2/f32/nchw/fprop", 4),
        ("fma/n{}k7/f32", 1),
        ("fft/b2h1w{}/f32/c2c", 1),
    ],
)
def test_one_value_in_many_is_a_zero_an_integer_or_of_another_size(problem, largest):
    draw, _ = _loaded(problem.format(100_000))
    values = next(iter(draw.views("C").values())).astype(np.float64).reshape(-1)
    scattered = np.concatenate([next(iter(draw.change().values()))[1] for _ in range(4000)]).astype(np.float64)
    for numbers in (values, scattered):
        share = SPECIAL / len(numbers)
        assert share * np.sum(numbers == 0) == pytest.approx(1 / 4, abs=0.1)
        assert np.signbit(numbers[numbers == 0]).mean() == pytest.approx(0.5, abs=0.25)
        assert share * np.sum((numbers % 1 == 0) & (numbers != 0)) == pytest.approx(1 / 4, abs=0.1)
        beyond = 1 / 4 * (largest > 1) + np.log(largest) / np.log(largest / 1e-3) / 2
        assert share * np.sum(abs(numbers) > 1) == pytest.approx(beyond * (1 if largest > 1 else 0), abs=0.15)
        assert abs(numbers).max() <= 1.01 * largest


def test_values_follow_from_the_seed_and_what_is_mixed_in_and_not_from_how_often_elements_have_changed():
    def drawn(entropy, changes=0, seed=1):
        draw = _loaded("copy/m31n33/f32", seed)[0]
        draw.mix(entropy)
        draw.redraw()
        before = draw.flat["a"].tolist()
        for _ in range(changes):
            draw.change()
        draw.redraw()
        return before, draw.flat["a"].tolist()

    assert drawn(3) == drawn(3, changes=100)
    for other in (drawn(4), drawn(3, seed=2)):
        assert all(element != changed for element, changed in zip(drawn(3), other, strict=True))


def test_a_draw_ends_with_the_last_that_holds_it():
    draw, _ = _loaded("copy/m3n5/f32")
    draw.change()
    reference = weakref.ref(draw)
    gc.disable()
    try:
        del draw
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("text", "widths"),
    [("gemm/m200n200k200/f32/NN", (1000, 1000, 1)), ("conv/n8c8h32w32k8r3s3/f16/nchw/fprop", (4, 4, 16))],
)
def test_special_values_of_every_third_draw_have_another_width(text, widths):
    draw = Draw(discover().problem(text), 0)
    for width in widths:
        draw.redraw()
        largest = max(float(np.abs(values).max()) for values in draw.flat.values())
        assert 0.5 * width < largest <= width


@pytest.mark.parametrize(("specials", "others"), [(0.5, 0.0), (16.0, 0.5), (-1.0, 0.0)])
def test_special_values_below_1_are_refused(specials, others):
    with pytest.raises(ValueError, match=r"of operand x is -?[01](.5)?, expected 0 or at least 1"):
        Operand("x", (3,), "f32", "in", specials=specials, others=others)


def test_column_major_views_keep_the_batch_outermost_and_read_the_buffer_column_by_column():
    draw, _ = _loaded("gemm/m5n6k7/f32/NN/batch3")
    assert np.array_equal(draw.views("F")["a"][2], draw.flat["a"][2 * 35 :].reshape((5, 7), order="F"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_a_nan_of_its_storage_type_and_the_least_of_integers(dtype):
    flat = np.empty(5, numpy_dtype(dtype))
    poison(flat, dtype)
    is_poison = flat == np.iinfo(flat.dtype).min if dtype in INTEGERS else np.isnan(flat.astype(np.float64))
    assert is_poison.all()


@pytest.mark.parametrize("dtype", ["e4m3.f32", "e5m2.f32", "s8.s32"])
def test_operands_of_a_byte_are_drawn_over_their_range_and_change(dtype):
    draw, operands = _loaded(f"gemm/m301n16k33/{dtype}/NT/lda+15")
    before = draw.views("C")["a"].astype(np.float64)
    if dtype == "s8.s32":
        assert set(before.flat) == set(range(-128, 128))
    else:
        assert np.quantile(before, [0.01, 0.99]) == pytest.approx([-1, 1], abs=0.05)
    assert abs(before.mean()) < 0.03 * before.max()
    draw.redraw()
    assert (draw.views("C")["a"].astype(np.float64) != before).mean() > 0.95
    operands.load(draw)
    _freshened(draw, operands)


def test_integers_of_32_bits_are_drawn_over_all_that_there_are():
    values = drawn(np.random.default_rng(0), (10_000,), Operand("a", (10_000,), "s32", "in"))
    assert values.dtype == np.int32
    assert min(-values.min(), values.max()) > 0.99 * 2**31


def test_an_integer_that_is_not_written_is_seen():
    draw, operands = _loaded("gemm/m5n6k7/s8.s32/NN")
    (spots,) = operands.spots(draw)
    spots.poison()
    assert spots.is_late()
    operands.flat["c"][:] = 0
    assert not spots.is_late()


@pytest.mark.parametrize("problem", ["copy/m301n33/f32", "copy/m2n3/f16", "transpose/m33n33/f32/in"])
def test_an_element_that_is_written_after_it_was_read_is_late(problem):
    draw, operands = _loaded(problem)
    (spots,) = operands.spots(draw)
    spots.poison()
    operands.flat[spots.operand][:] = 1
    for read in spots.early_reads():
        read()
    assert not spots.is_late()
    operands.flat[spots.operand][:] = 2
    assert spots.is_late()


def _freshened(draw, operands):
    """Change a set's values twice; check that they then are the drawn values with only the second change."""
    for change in (draw.change(), draw.change()):
        operands.freshen(draw, change)
    with draw.holding(change):
        assert np.array_equal(operands.flat["a"].view(np.uint8), draw.flat["a"].view(np.uint8))


@pytest.mark.parametrize("problem", ["copy/m301n33/f32", "copy/m2n3/f32"])
def test_fresh_values_take_the_place_of_the_last_ones(problem):
    draw, operands = _loaded(problem)
    _freshened(draw, operands)
    places = {name: places.tolist() for name, (places, _) in draw.change().items()}
    assert places.keys() == {"a"}
    assert len(set(places["a"])) == len(places["a"]) == min(8, draw.flat["a"].size)
    assert operands.damage(draw) is None


def test_restored_inouts_hold_the_change_too():
    draw, operands = _loaded("gemm/m50n60k7/f32/NN/beta1")
    operands.freshen(draw, change := draw.change())
    operands.flat["c"][:] = 7
    operands.restore(draw)
    with draw.holding(change):
        assert np.array_equal(operands.flat["c"], draw.flat["c"])


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (lambda s: s.flat["a"].__setitem__(0, 5), "changed its input a"),
        (lambda s: ctypes.memset(s.flat["c"].ctypes.data - 1, 0, 1), "wrote before the bounds of c"),
        (lambda s: ctypes.memset(s.flat["c"].ctypes.data + s.flat["c"].nbytes, 0, 1), "wrote beyond the bounds of c"),
        (lambda s: s.flat["c"].__setitem__(6, 0), "wrote into the padding between the rows of c"),
        # Multiplying by 0.5 leaves NaN unchanged, but not the largest number.
        (lambda s: s.flat["c"].__imul__(0.5), "wrote into the padding between the rows of c"),
        (lambda s: s.flat["c"].__setitem__(5, 0), None),
    ],
)
@pytest.mark.parametrize("moved", [False, True])
def test_damage_is_named(write, complaint, moved):
    draw, operands = _loaded("gemm/m5n6k7/f32/NN/ldc+1")
    if moved:
        operands = operands.moved(draw.rng)
        operands.fence()
        operands.load(draw)
    operands.poison()
    write(operands)
    assert operands.damage(draw) == complaint


def test_all_damage_is_repaired_at_once():
    draw, operands = _loaded("gemm/m5n6k7/f32/NN/ldc+1")
    operands.poison()
    for flat in operands.flat.values():
        np.lib.stride_tricks.as_strided(flat, (2,), (flat.nbytes,))[1] = 1
    operands.flat["a"][3] = 9
    assert operands.repaired(draw) == "changed its input a"
    assert operands.damage(draw) is None


def test_operands_begin_at_a_page_and_moved_ones_at_places_of_a_page_that_are_off_a_cache_line():
    draw, operands = _loaded("gemm/m5n6k7/f32/NN")
    assert {operands.flat[name].ctypes.data % 4096 for name in "abc"} == {0}
    offsets = {operands.moved(draw.rng).flat[name].ctypes.data % 4096 for _ in range(100) for name in "abc"}
    assert len(offsets) > 60
    assert {place % 64 for place in offsets} == {16, 32, 48}


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("f64", np.float64)])
def test_a_kernel_that_reads_beyond_an_operand_finds_nan_and_the_largest_number_by_turns(dtype, kind):
    _, operands = _loaded(f"copy/m3n5/{dtype}")
    a = operands.flat["a"]
    beyond = np.lib.stride_tricks.as_strided(a[-1:], (2**16 // a.itemsize + 1,), (a.itemsize,))[1:]
    each = 8 // a.itemsize
    assert np.isnan(beyond.reshape(-1, 2, each)[:, 0]).all()
    assert (beyond.reshape(-1, 2, each)[:, 1] > np.finfo(kind).max / 1e3).all()


@pytest.mark.parametrize("pad", [1, 2, 7])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16.f32", "bf16", "e4m3.f32", "e5m2.f32", "s8.s32"])
def test_padding_is_nan_and_the_largest_number_by_turns_from_row_to_row_and_along_rows(dtype, pad):
    draw, operands = _loaded(f"gemm/m8n5k6/{dtype}/NT/lda+{pad}/ldc+{pad}")
    operands.poison()
    draw.redraw()
    operands.load(draw)
    for name, size in (("a", 6), ("c", 5)):
        gaps = operands.flat[name].reshape(8, size + pad)[:, size:]
        integer = gaps.dtype.kind == "i"
        largest = np.iinfo(gaps.dtype).max if integer else ml_dtypes.finfo(gaps.dtype).max.astype(np.float64)
        values = gaps.astype(np.float64)
        marked = values == np.iinfo(gaps.dtype).min if integer else np.isnan(values)
        for by_turns in (marked, values != largest):
            assert (by_turns == (np.indices(gaps.shape).sum(axis=0) % 2 == 0)).all()


def test_scratch_is_shared_by_set_ups_and_counted_once():
    scratch = ScratchBuffers(Cpu())
    first = scratch.take((4, 8), "f32")
    scratch.rewind()
    second = scratch.take((4, 8), "f32")
    assert np.shares_memory(first, second)
    assert scratch.nbytes == 128


def test_operands_name_what_they_have():
    _, operands = _loaded("copy/m3n4/f32")
    x = Operands(operands, "C", Cpu(), 1, ScratchBuffers(Cpu()))
    assert x.a.shape == (3, 4)
    with pytest.raises(AttributeError, match="'d' is not an operand; expected one of a, b"):
        _ = x.d


def test_a_part_of_parts_is_that_of_the_whole():
    whole = np.arange(10)
    spread = Spread([whole[:2], whole[2:9], whole[9:]])
    for first in range(-10, 10):
        for last in range(-10, 11):
            parts = spread[first:last].parts
            assert (np.concatenate(parts).tolist() if parts else []) == whole[first:last].tolist()
