"""The formats of gradients on the wire: uncompressed, or blocks of bits or bytes with scales."""

from itertools import pairwise
from typing import NamedTuple


class Format(NamedTuple):
    """A compressed format: elements per block, bits per element, and FP32 scales per block.

    onebit: the bit of an element is 1 if its value is at least 0. The scales are the mean of the elements with a 1 and
    the mean of those with a 0 (Seide, Fu, Droppo, Li and Yu, 1-Bit Stochastic Gradient Descent, Interspeech 2014).
    int8: an element is an integer from -127 to 127, rounded to nearest, times the scale, which is the block's largest
    magnitude over 127. A block of zeros has the scale 0.
    """

    block: int
    bits: int
    scales: int

    def nbytes(self, n: int) -> int:
        """Return the bytes of `n` elements that begin at the edge of a block; the last block may be short."""
        full, rest = divmod(n, self.block)
        return full * (self.block * self.bits // 8 + 4 * self.scales) + (
            -(-rest * self.bits // 8) + 4 * self.scales if rest else 0
        )

    def stripes(self, w: int, n: int) -> list[tuple[int, int]]:
        """Divide n elements into w stripes of whole blocks, one for each owner; return the begin and end of each."""
        blocks = -(-n // self.block)
        edges = [min(n, blocks * i // w * self.block) for i in range(w + 1)]
        return list(pairwise(edges))


FORMATS = {"onebit": Format(512, 1, 2), "int8": Format(256, 8, 1)}
