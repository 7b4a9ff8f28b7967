"""The first Ctrl-C of a run lets what is being measured finish."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT into a flag; the second one raises KeyboardInterrupt as usual."""
    hits: list[int] = []
    before: Any = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        hits.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(hits)
    finally:
        signal.signal(signal.SIGINT, before)
