"""A plug-in of kernels that are wrong, that raise, or that cheat; each is named after what it does."""

from typing import Any

import numpy as np

from kernelmark import Launch, Unsupported, kernel

COPY: dict[str, Any] = {"provider": "test", "device": "cpu", "numerics": "exact", "dtypes": ("f32",)}


@kernel("copy", **COPY)
def honest(problem: Any, x: Any) -> Launch:
    """Copies."""
    return lambda: np.copyto(x.b, x.a)


@kernel("copy", **COPY)
def wrong_element(problem: Any, x: Any) -> Launch:
    """Adds 1e-3 to one element."""

    def launch() -> None:
        np.copyto(x.b, x.a)
        x.b[-1, -1] += 1e-3

    return launch


@kernel("copy", **COPY)
def unwritten_element(problem: Any, x: Any) -> Launch:
    """Leaves one element out."""

    def launch() -> None:
        keep = x.b[1, 2].copy()
        np.copyto(x.b, x.a)
        x.b.view(np.uint32)[1, 2] = keep.view(np.uint32)

    return launch


@kernel("copy", **COPY)
def nan_element(problem: Any, x: Any) -> Launch:
    """Writes one NaN."""

    def launch() -> None:
        np.copyto(x.b, x.a)
        x.b[0, 1] = np.nan

    return launch


@kernel("copy", **COPY)
def in_set_up(problem: Any, x: Any) -> Launch:
    """Computes its answer during set-up."""
    answer = x.a.copy()
    return lambda: np.copyto(x.b, answer)


@kernel("copy", **COPY)
def cached(problem: Any, x: Any) -> Launch:
    """Computes once and returns that from then on."""
    answers: list[Any] = []

    def launch() -> None:
        if not answers:
            answers.append(x.a.copy())
        np.copyto(x.b, answers[0])

    return launch


@kernel("copy", **COPY)
def looks_at_one(problem: Any, x: Any) -> Launch:
    """Copies only when the first element differs from what it was; else returns the last copy."""
    seen: list[Any] = [None, None]

    def launch() -> None:
        if seen[0] != x.a[0, 0]:
            seen[:] = x.a[0, 0], x.a.copy()
        np.copyto(x.b, seen[1])

    return launch


@kernel("copy", **COPY)
def zeroes_input(problem: Any, x: Any) -> Launch:
    """Right, but its input is gone."""

    def launch() -> None:
        np.copyto(x.b, x.a)
        x.a[...] = 0

    return launch


@kernel("copy", **COPY)
def out_of_bounds(problem: Any, x: Any) -> Launch:
    """Writes one element past the end of its output."""
    beyond = np.lib.stride_tricks.as_strided(x.b, (problem.m + 1, problem.n), x.b.strides)

    def launch() -> None:
        np.copyto(x.b, x.a)
        beyond[-1, 0] = 1

    return launch


@kernel("copy", **COPY)
def raises_in_set_up(problem: Any, x: Any) -> Launch:
    """Raises before it is ever called."""
    raise RuntimeError("no such thing\nsecond line")


@kernel("copy", **COPY)
def raises_in_run(problem: Any, x: Any) -> Launch:
    """Raises in its first call."""

    def launch() -> None:
        raise ValueError("cannot")

    return launch


@kernel("copy", **COPY)
def raises_when_timed(problem: Any, x: Any) -> Launch:
    """Is right the first time and raises later."""
    calls = [0]

    def launch() -> None:
        calls[0] += 1
        if calls[0] > 5:
            raise ArithmeticError("worn out")
        np.copyto(x.b, x.a)

    return launch


@kernel("copy", **COPY)
def no_memory(problem: Any, x: Any) -> Launch:
    """Asks for more memory than there is."""
    raise MemoryError("4 PB wanted")


@kernel("copy", **COPY)
def greedy(problem: Any, x: Any) -> Launch:
    """Wants more scratch than there is."""
    scratch = x.scratch((10**15,), "f32")
    return lambda: np.copyto(scratch, 0)


def _cannot_count(problem: Any) -> int:
    raise ZeroDivisionError("no tiles")


@kernel("copy", executed=_cannot_count, **COPY)
def miscounted(problem: Any, x: Any) -> Launch:
    """Computes the right result, but its `executed` function raises."""
    return lambda: np.copyto(x.b, x.a)


@kernel("copy", executed=lambda problem: 7, **COPY)
def counted(problem: Any, x: Any) -> Launch:
    """Reports the operations that it executes and the tile that it chose."""
    x.chose(tile=3)
    return lambda: np.copyto(x.b, x.a)


@kernel("copy", **COPY)
def refuses(problem: Any, x: Any) -> Launch:
    """Raises Unsupported in set-up."""
    raise Unsupported("takes no matrices on Saturdays")
