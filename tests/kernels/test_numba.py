"""Numba's functions: the cache follows the source, products are right at all edges, and threads do each band once."""

import os
import shutil
import subprocess
import sys
import time
import weakref
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from threading import get_native_id

import numba
import numpy as np
import pytest

from kernelmark import Unsupported
from kernelmark.kernels._host import ALONE, NEAR
from kernelmark.kernels._launches import Shared, beside, in_bands, in_turn
from kernelmark.kernels._numba import bind, jit, part
from kernelmark.kernels._order import DEPTH, FAR, FEW, PANELS
from kernelmark.kernels._packing import ROWS, VECTORS, WIDTH
from kernelmark.kernels._product import SCRATCH, multiply, multiplying
from kernelmark.kernels._team import Band, team
from kernelmark.kernels._tile import LANES, LINE, products
from support.kernels import compiled_by

ROOT = Path(__file__).parents[2]
CALLEE = """
from kernelmark.kernels._numba import jit

@jit
def callee():
    return {value}
"""
CALLER = """
from kernelmark.kernels._numba import jit
from kernelmark.kernels._callee import callee

@jit
def answer():
    return callee() + 1
"""


@pytest.fixture
def answer(tmp_path):
    """Return a function that runs compiled code in a new process: a function, and its callee, which returns `value`."""
    shutil.copytree(ROOT / "bench", tmp_path / "bench")
    shutil.copytree(ROOT / "kernelmark", tmp_path / "kernelmark", symlinks=True)
    (tmp_path / "kernels").mkdir()
    for name in ("__init__.py", "_numba.py", "_host.py"):
        shutil.copy(ROOT / "kernels" / name, tmp_path / "kernels")
    (tmp_path / "kernels" / "_caller.py").write_text(CALLER)

    def run(value, before=""):
        (tmp_path / "kernels" / "_callee.py").write_text(CALLEE.format(value=value))
        env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", f"{before}\nfrom kernelmark.kernels._caller import answer; print(answer())"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        return int(done.stdout)

    run.cache = tmp_path / "cache" / "kernelmark" / "numba"
    return run


def test_a_function_is_compiled_again_if_its_callee_has_changed(answer):
    assert answer(10) == 11
    assert answer(20) == 21


def test_compiled_functions_are_cached_and_removed_after_a_month(answer):
    answer(10)
    (folder,) = answer.cache.iterdir()
    assert list(folder.rglob("*.nbc"))
    os.utime(folder, (0, 0))
    answer(20)
    assert folder not in list(answer.cache.iterdir())


def test_a_function_is_compiled_even_if_no_file_can_be_written(answer):
    assert answer(10, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))") == 11
    assert not list(answer.cache.rglob("*.nbc"))


def test_functions_are_refused_if_numba_compiles_nothing(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(Unsupported, match="NUMBA_DISABLE_JIT is set, so Numba compiles nothing; unset it"):
        jit(lambda: None)


@part
def _next(value):
    return value + 1


def test_a_part_is_compiled_only_within_its_caller():
    after = numba.njit(lambda value: _next(value) + _next(2 * value))
    assert {function for function, _ in compiled_by(lambda: after(1))} == {after.py_func}
    assert after(3) == 11


#: One row, fewer than a tile, a tile, more than whole tiles, and numbers that tiles of one row less fit better.
M = (1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS - 1, 2 * (ROWS - 1), 5 * ROWS + 1)
#: Columns of one group of panels, and one panel of a second group.
REST = PANELS * WIDTH + WIDTH
#: `ALONE` columns and more; lanes with one, `FEW` and more beyond whole vectors; several groups of panels.
N = (1, 2, ALONE, ALONE + 1, LANES - 1, LANES, LANES + 1, 2 * LANES + FEW + 1, WIDTH, WIDTH + FEW, REST - 1, REST)
K = (1, 5, LANES, LANES + 1, DEPTH + 3)


def stored(x, order):
    """Return a copy in rows (N), columns (T), or rows too far apart to be read in place (F).

    Elements before it and after each of its rows are NaN.
    """
    lines = x.T if order == "T" else x
    padded = np.full((len(lines) + 1, FAR + NEAR if order == "F" else lines.shape[1] + 3), np.nan, np.float32)
    padded[:-1, : lines.shape[1]] = lines
    flat = np.concatenate([np.full(5, np.nan, np.float32), padded.ravel()])
    return (flat, 5, 1, padded.shape[1]) if order == "T" else (flat, 5, padded.shape[1], 1)


@pytest.fixture(scope="module")
def compiled():
    """The compiled product that `multiplying` passes to a set-up."""
    outputs = []

    def setup(product):
        outputs.append(product)
        return lambda: None

    multiplying(setup)
    return outputs[0]


@pytest.mark.parametrize("k", K)
def test_a_product_is_right_at_all_edges_and_in_every_order(compiled, k):
    rng, scratch = np.random.default_rng(17), np.full(SCRATCH, np.nan, np.float32)
    for m, n in product(M, N):
        a, b, before = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
        plain = a.astype(np.float64) @ b
        size = np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(before)
        for first, second, third, keep in product("NT", "NTF", "NT", (False, True)):
            c = stored(before if keep else np.full((m, n), np.nan, np.float32), third)
            outside = np.isnan(c[0]).sum() - (0 if keep else m * n)
            multiply(compiled, scratch, m, n, k, stored(a, first), stored(b, second), keep, c)
            written = np.lib.stride_tricks.as_strided(c[0][c[1] :], (m, n), (4 * c[2], 4 * c[3]))
            error = np.abs(written - plain - (before if keep else 0))
            assert (error <= (k + 2) * 2.0**-24 * size).all(), f"{m} x {n}, {first}{second}{third}, added: {keep}"
            assert np.isnan(c[0]).sum() == outside  # nothing was stored outside of the product


def test_each_step_of_a_wide_tile_prefetches_a_row_and_another_line():
    tile = products((ROWS,), VECTORS)

    @jit
    def added(c, a, b):
        tile((ROWS, VECTORS * LANES), c, (0, WIDTH), False, a, (0, 1, ROWS), b, (0, WIDTH), len(a) // ROWS, (0, 0))

    added.compile("void(f4[::1], f4[::1], f4[::1])")
    (code,) = added.inspect_llvm().values()
    assert code.count("call void @llvm.prefetch") >= -(-VECTORS * LANES // LINE) + 1


WAYS = {"awake": 0.0, "asleep": 0.05}  # seconds between launches


@jit
def add_one(row):
    for i in range(len(row)):
        row[i] += 1


@jit
def divide(row):
    row[0] = 1 // row[0]


def together(*bands):
    team(len(bands) - 1).run([Band.of(band) for band in bands])


@pytest.mark.parametrize("pause_s", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_every_launch_does_each_band_once(threads, pause_s):
    bands = []
    launch = in_bands(16, threads, lambda *band: lambda: bands.append(band))
    edges = [16 * i // threads for i in range(threads + 1)]
    for _ in range(5 if pause_s else 2000):
        bands.clear()
        launch()
        assert sorted(bands) == list(pairwise(edges))
        time.sleep(pause_s)


@pytest.mark.parametrize("pause_s", WAYS.values(), ids=WAYS)
def test_bands_of_any_number_of_compiled_calls_run_together_with_interpreted_ones(pause_s):
    counts = np.zeros((3, 8), np.int64)
    calls = [bind(add_one, row) for row in counts]
    for number in range(1, 5 if pause_s else 500):
        together(in_turn(*calls[:2]), in_turn(), calls[2])
        together(lambda: add_one(counts[0]), in_turn(calls[1], calls[2]), in_turn())
        assert (counts == 2 * number).all()
        time.sleep(pause_s)


@jit
def copy(to, source):
    for i in range(len(to)):
        to[i] = source[i]


@pytest.mark.parametrize("pause_s", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_compiled_launches_in_turn_become_one_with_a_barrier_between_them(threads, pause_s):
    counts, seen, total = np.zeros((threads, 10_000), np.int64), np.zeros((threads, 10_000), np.int64), np.zeros(1)
    adding = in_bands(threads, threads, lambda i, _: in_turn(*[bind(add_one, counts[i])] * (1 if i else 3)))
    reading = in_bands(threads, threads, lambda i, _: bind(copy, seen[i], counts[(i + 1) % threads]))
    launch = in_turn(adding, reading, bind(add_one, total), bind(copy, counts[0], counts[-1]))
    assert isinstance(launch, Shared)
    for number in range(1, 5 if pause_s else 500):
        launch()
        expected = [*[number] * (threads - 1), number + 2]
        assert (seen == np.array(expected)[:, None]).all()
        assert total == number
        time.sleep(pause_s)


def test_threads_meet_before_and_after_concurrent_launches_and_not_between_them():
    counts = np.zeros((2, 8), np.int64)
    adding = in_bands(2, 2, lambda i, _: bind(add_one, counts[i]))
    assert len(in_turn(adding, adding).meetings) == 1
    both = beside(adding, in_turn(adding, adding), bind(add_one, counts[1]))
    assert len(both.meetings) == 1  # the one within the second
    launch = in_turn(adding, both, adding)
    assert len(launch.meetings) == 3
    launch()
    assert (counts == [[5], [6]]).all()


def test_interpreted_launches_keep_their_place_between_compiled_ones():
    counts, sums = np.zeros((2, 8), np.int64), []
    adding = in_bands(2, 2, lambda i, _: bind(add_one, counts[i]))
    launch = in_turn(adding, lambda: sums.append(counts.sum()), adding, adding, lambda: sums.append(counts.sum()))
    launch()
    assert sums == [16, 48]


def test_an_error_of_a_compiled_function_in_another_thread_is_raised_once():
    numbers = np.zeros(1, np.int64)
    bands = bind(divide, numbers), in_turn()
    others = bind(add_one, np.zeros(1, np.int64)), bind(add_one, np.zeros(1, np.int64))
    for launch in (Shared(bands), in_turn(Shared(bands), Shared(others)), in_turn(Shared(others), Shared(bands))):
        numbers[0] = 0
        with pytest.raises(ArithmeticError):
            launch()
        numbers[0] = 1
        launch()


def test_an_error_of_a_band_is_raised_once_and_the_next_launch_works():
    fails = [True]

    def band(start, stop):
        def run():
            if start == 0 and fails[0]:
                raise ArithmeticError("in another thread")

        return run

    launch = in_bands(2, 2, band)
    with pytest.raises(ArithmeticError, match="in another thread"):
        launch()
    fails[0] = False
    launch()


def test_a_launch_that_has_ended_keeps_no_operand_alive():
    operand = np.zeros(3)
    reference = weakref.ref(operand)
    together(partial(np.negative, operand, out=operand), lambda: None)
    del operand
    assert reference() is None


def test_a_launch_that_is_interrupted_ends_before_the_next_begins():
    order = []

    def slow():
        time.sleep(0.2)
        order.append("slow")

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(slow, interrupted)
    together(lambda: order.append("next"), lambda: None)
    assert order == ["slow", "next"]


@pytest.mark.parametrize("has_run", [False, True], ids=["before", "after"])
def test_an_interrupt_leaves_no_thread_waiting_at_a_meeting(monkeypatch, has_run):
    counts, seen = np.zeros((2, 300_000), np.int64), np.zeros((2, 300_000), np.int64)
    adding = in_bands(2, 2, lambda i, _: bind(add_one, counts[i]))
    launch = in_turn(adding, in_bands(2, 2, lambda i, _: bind(copy, seen[i], counts[1 - i])))
    perform = team(1)._perform

    def interrupted(address, calls):
        if has_run:
            perform(address, calls)
        raise KeyboardInterrupt

    for trial in range(20):
        with monkeypatch.context() as patch:
            patch.setattr(team(1), "_perform", interrupted)
            with pytest.raises(KeyboardInterrupt):
                launch()
        if trial % 2:
            together(lambda: None, lambda: None)  # another launch has to find its thread free
        launch()
        counts[:] = 0
        for number in range(1, 5):
            launch()
            assert (seen == number).all()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are kept to CPUs on Linux alone")
def test_each_thread_has_its_own_cpu():
    others = len(os.sched_getaffinity(0)) - 1
    if not others:
        pytest.skip("needs two CPUs")
    affinities = []
    here = get_native_id()
    bands = [lambda: affinities.append(os.sched_getaffinity(0))] * others
    for _ in range(20):
        affinities.clear()
        together(*bands, lambda: None)
        assert all(affinities)
        assert sum(map(len, affinities)) == len(set().union(*affinities)) <= others
        time.sleep(0.01)
    assert get_native_id() == here
    assert len(os.sched_getaffinity(0)) == others + 1  # the calling thread keeps its CPUs
