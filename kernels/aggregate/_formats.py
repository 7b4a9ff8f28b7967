"""What gradients take on the wire: in full, or as blocks of bits or bytes with their scales."""

from itertools import pairwise
from typing import NamedTuple


class Format(NamedTuple):
    """A compressed format: elements of a block, bits of an element, and FP32 scales that go with each block.

    onebit: an element is 1 where it is at least 0, and the scales are the mean of those and the mean of the others
    (Seide, Fu, Droppo, Li and Yu, 1-Bit Stochastic Gradient Descent, Interspeech 2014). int8: an element is a multiple
    of -127 to 127, rounded to nearest, of the scale, which is the block's largest magnitude over 127. A block of zeros
    has the scale 0.
    """

    block: int
    bits: int
    scales: int

    def nbytes(self, n: int) -> int:
        """Bytes of `n` elements that begin with a block; the last block may be short."""
        full, rest = divmod(n, self.block)
        return full * (self.block * self.bits // 8 + 4 * self.scales) + (
            -(-rest * self.bits // 8) + 4 * self.scales if rest else 0
        )

    def stripes(self, w: int, n: int) -> list[tuple[int, int]]:
        """The w owners' stripes of n elements, of whole blocks each: where each begins and ends."""
        blocks = -(-n // self.block)
        edges = [min(n, blocks * i // w * self.block) for i in range(w + 1)]
        return list(pairwise(edges))


FORMATS = {"onebit": Format(512, 1, 2), "int8": Format(256, 8, 1)}
