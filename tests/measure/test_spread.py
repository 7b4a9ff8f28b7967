"""Arrays on several GPUs, with the host's memory for theirs: they hold what one array would."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from kernelmark.bench.measure.spread import Peers, Spread

EDGE = 8


class Gpu(nullcontext):
    def synchronize(self):
        """Return at once: nothing is queued."""


class Part(np.ndarray):
    """An array with what Spread asks of CuPy's."""

    device = Gpu()

    def set(self, values):
        self[...] = values

    def get(self):
        return np.array(self)


@pytest.fixture
def memory(monkeypatch):
    """Memory of three GPUs."""
    cuda = SimpleNamespace(Device=lambda gpu: nullcontext())
    empty = lambda size, dtype: np.zeros(size, dtype).view(Part)  # noqa: E731
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=empty, uint8=np.uint8))
    return Peers(SimpleNamespace(dtype=np.dtype), (0, 1, 2), EDGE)


@pytest.mark.parametrize("n", [1, 7, 100])
def test_what_is_uploaded_lies_in_parts_between_the_edges(memory, n):
    raw = memory.bytes(3 * n * 4 + 2 * EDGE)
    raw.fill(0xA5)
    flat, want = raw[EDGE : EDGE + 3 * n * 4].view("f4"), np.arange(3 * n, dtype="f4")
    memory.upload(flat, want)
    assert [part.tolist() for part in flat.parts] == want.reshape(3, n).tolist()
    assert memory.download(flat).tolist() == want.tolist()
    for guard in (raw[:EDGE], raw[-EDGE:]):
        assert memory.download(guard).tobytes() == bytes([0xA5]) * EDGE


def test_single_elements_go_where_they_belong(memory):
    flat = memory.bytes(12 * 8 + 2 * EDGE)[EDGE:-EDGE].view("f8")
    memory.scatter(flat, np.array([0, 3, 4, 11, 3]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert memory.download(flat).tolist() == [1, 0, 0, 5, 3, 0, 0, 0, 0, 0, 0, 4]


def test_a_part_of_parts_is_that_of_the_whole():
    whole = np.arange(10)
    spread = Spread([whole[:2], whole[2:9], whole[9:]])
    for first in range(-10, 10):
        for last in range(-10, 11):
            found = spread[first:last].parts
            assert (np.concatenate(found).tolist() if found else []) == whole[first:last].tolist()
