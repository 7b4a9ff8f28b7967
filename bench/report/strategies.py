"""Strategies of aggregation in the scaling model: the bytes that cross a link, and the additions of each worker.

docs/scaling.md explains each number.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

#: Compression ratios: bytes of a block in FP32 over bytes on the wire (512 bits + 2 FP32 values; 256 bytes + 1 value).
ONE_BIT, EIGHT_BITS = 2048 / 72, 1024 / 260


class Strategy(NamedTuple):
    """The model of a strategy: its use of the workers and their links.

    crossings, share: functions of the number of workers. crossings: how many gradients cross the busiest link. share:
    the fraction of the measured additions that each worker makes if workers add at the same time, otherwise 1.
    smaller: the compression ratio of a gradient on the link.
    """

    crossings: Callable[[int], float]
    share: Callable[[int], float]
    smaller: float = 1.0

    def link_s(self, workers: int, gradient_bytes: int, bytes_per_s: float) -> float:
        """Return the seconds that the links need for an aggregation; 0 for one worker."""
        crossings = self.crossings(workers) if workers > 1 else 0.0
        return crossings * gradient_bytes / self.smaller / bytes_per_s if crossings else 0.0


def _levels(workers: int) -> int:
    return (workers - 1).bit_length()


def _stripes(smaller: float = 1.0) -> Strategy:
    """Return a strategy in which each of w workers adds one of w stripes, and sends the sum to all others."""
    return Strategy(lambda w: 2 * (w - 1) / w, lambda w: 1 / w, smaller)


_HOST = Strategy(lambda _: 2.0, lambda _: 1.0)
#: Strategies by kernel name, without the provider.
STRATEGIES = {
    "host_serial": _HOST,
    "host_parallel": _HOST,
    "local": _HOST,
    "tree": Strategy(lambda w: 2.0 * _levels(w), lambda w: _levels(w) / max(1, w - 1)),
    "device": _stripes(),
    "ring": _stripes(),
    "bf16": _stripes(2.0),
    "int8": _stripes(EIGHT_BITS),
    "onebit": _stripes(ONE_BIT),
    # Strategies whose measured time includes the link: gradients are on a GPU, and cross its link to the host and back.
    "cuda.host_serial": Strategy(lambda _: 0.0, lambda _: 1.0),
    "cuda.host_parallel": Strategy(lambda _: 0.0, lambda _: 1.0),
}
#: The strategies that model parallelism can use, since each worker has a stripe of the activations and gradients.
BY_STRIPES = ("device", "ring", "bf16", "int8")


#: Strategies whose measured time includes links between GPUs, so that no stated link is added.
ACROSS = ("p2p", "nccl")


def strategy_name(kernel: str) -> str:
    """Return the strategy of a kernel: `host_serial` for `aggregate/cpu.host_serial@THREADS=2`, or `p2p.ring`."""
    whole = kernel.partition("@")[0].rpartition("/")[2]
    provider, _, name = whole.partition(".")
    return whole if provider in ACROSS or whole in STRATEGIES else name


class StatedSpeedup(NamedTuple):
    """A published speedup. low, high: None if no number is given. strategies: matching strategies, the best first."""

    what: str
    workers: int
    low: float | None
    high: float | None
    strategies: tuple[str, ...]
    source: str

    @property
    def words(self) -> str:
        """Return `3.6-3.8x`, or `nearly linear`."""
        if self.low is None or self.high is None:
            return "nearly linear"
        return f"{self.low:g}x" if math.isclose(self.low, self.high) else f"{self.low:g}-{self.high:g}x"


_BLOG = "T. Dettmers, Which GPU(s) to Get for Deep Learning, 2017"
_ICLR = "T. Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016"
_CLOUD = "a cloud provider, Accelerating deep learning with GPUs, about 2017"
STATED = (
    StatedSpeedup("CNTK on 4 GPUs", 4, 3.6, 3.8, ("onebit",), _BLOG),
    StatedSpeedup("Torch and PyTorch on 4 GPUs", 4, 3.6, 3.8, ("host_parallel", "cuda.host_parallel"), _BLOG),
    StatedSpeedup("TensorFlow on 4 GPUs", 4, 2.0, 3.0, ("host_serial", "cuda.host_serial"), _BLOG),
    StatedSpeedup("NVCaffe on 8 P100", 8, None, None, ("tree",), _CLOUD),
    StatedSpeedup("MXNet on 8 P100", 8, None, None, ("device", "ring"), _CLOUD),
    StatedSpeedup("8 bits on 96 GPUs", 96, 50.0, 50.0, ("int8",), _ICLR),
    StatedSpeedup("32 bits on 96 GPUs", 96, 23.0, 23.0, ("device", "ring"), _ICLR),
    StatedSpeedup("CNTK, 1 bit and block momentum, on 96 GPUs", 96, 90.0, 95.0, ("onebit",), _BLOG),
)
