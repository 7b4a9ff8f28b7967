"""Choose the order of a product's loops and the operands to copy; for Numba functions."""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernelmark.kernels._host import ALONE, is_read_in_place
from kernelmark.kernels._numba import inlined, part
from kernelmark.kernels._packing import ROWS, WIDTH
from kernelmark.kernels._tile import LANES

#: DEPTH steps of the sum and PANELS panels of b are packed at a time, plus one panel for the remainder: 480 KiB with
#: 512-bit registers.
DEPTH, PANELS = 512, 4
#: If rows of a and b are at most FAR elements apart and c has at most SMALL elements, nothing is copied, and SHALLOW
#: steps are computed at a time.
SHALLOW, FAR, SMALL = 128, 512, 2**16
#: The most columns beyond whole vectors that are multiplied one by one, rather than as a vector that is mostly zeros.
#: Rows of a are read again for these columns. If c has no other columns, rows are read once, and the limit is ALONE.
FEW = 2

#: Cycles per element. If neighbouring lanes are not contiguous: STORE to store c, TURN to copy b. COPY to copy a if it
#: is not contiguous along the sum. PACK to copy b if its rows are contiguous, but too far apart to be read in place.
STORE, TURN, COPY, PACK = 4, 0.85, 0.7, 0.5

is_near = part(is_read_in_place)


@part
def _rows_of(m):
    """Return the height of tiles, ROWS or ROWS - 1, that wastes fewer rows in the last tile."""
    return ROWS if -(-m // ROWS) * ROWS <= -(-m // (ROWS - 1)) * (ROWS - 1) else ROWS - 1


@part
def _tail(m, n, a_copied):
    """Return the number of columns that are multiplied one by one."""
    tail = n % LANES
    return tail if tail <= (ALONE if n == tail else FEW) and m >= ROWS and not a_copied else 0


@part
def _is_lying(m, n, a_step, b):
    """Return whether a (contiguous along m) and b (contiguous along n) are both read in place."""
    near = 1 < a_step <= FAR and b[1] == 1 and b[0] <= FAR
    return near and m >= ROWS and m * n <= SMALL


@inlined
def _estimate(m, n, k, a_step, b, c_column):
    """Return the approximate cycles of a product if tiles have rows along m and lanes along n, and how to compute it.

    The estimate assumes that two vectors are multiplied per cycle. The second value is the same tuple as in `order`; it
    is returned here because a separate function would take long to compile.
    """
    a_copied = a_step != 1
    rows, tail, lying = _rows_of(m), _tail(m, n, a_copied), _is_lying(m, n, a_step, b)
    near = b[1] == 1 and (lying or is_near(min(k, DEPTH), b[0]))
    tiles = -(-m // rows) * rows * (-(-(n - tail) // LANES) + tail / LANES) * k / 2
    copies = (a_copied and not lying) * COPY * m * k * max(1, -(-(n - WIDTH + 1) // (PANELS * WIDTH)))
    packs = (TURN if b[1] != 1 else PACK * (not near)) * n * k
    return tiles + copies + packs + (c_column != 1) * STORE * m * n * -(-k // DEPTH), (rows, tail, lying, near)


@inlined
def order(m, n, k, a, b, c):
    """Return whether C^T = B^T A^T takes less time than C = A B, and how to compute the faster of the two.

    The second value is a tuple: the rows of a tile, the number of columns that are multiplied one by one, whether both
    a and b are read in place, and whether at least b is. a, b, c: strides of rows and columns.
    """
    cycles, way = _estimate(m, n, k, a[1], b, c[1])
    other_cycles, other_way = _estimate(n, m, k, b[0], (a[1], a[0]), c[0])
    return (True, other_way) if other_cycles < cycles else (False, way)
