"""Choose the order of a product's loops and the operands to copy; for Numba functions."""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernelmark.kernels._host import ALONE, is_read_in_place
from kernelmark.kernels._numba import inlined, part
from kernelmark.kernels._packing import ROWS, WIDTH
from kernelmark.kernels._tile import LANES

#: Steps of a sum at a time, and panels of b, plus one for the remainder: 480 KiB in all with 512-bit registers.
DEPTH, PANELS = 512, 4
#: Steps at a time if nothing is copied, since rows of a and b are at most FAR apart and c has at most SMALL elements.
SHALLOW, FAR, SMALL = 128, 512, 2**16
#: The most columns beyond whole vectors that are multiplied one by one, rather than as a vector that is mostly zeros.
#: For these, rows of a are read again; if there are no other columns, rows are read once, and the limit is ALONE.
FEW = 2

#: Cycles to store an element of c, or to copy one of b or a, if neighbouring lanes are not contiguous; and to copy one
#: of b if they are, but rows are too far apart to be read in place.
STORE, TURN, COPY, PACK = 4, 0.85, 0.7, 0.5

is_near = part(is_read_in_place)


@part
def _rows_of(m):
    """Return the rows of a tile for which the last of the tiles wastes the fewest rows."""
    return ROWS if -(-m // ROWS) * ROWS <= -(-m // (ROWS - 1)) * (ROWS - 1) else ROWS - 1


@part
def _few(m, n, a_copied):
    """Return the number of columns that are multiplied one by one."""
    few = n % LANES
    return few if few <= (ALONE if n == few else FEW) and m >= ROWS and not a_copied else 0


@part
def _is_lying(m, n, a_step, b):
    """Return whether rows of a, whose elements are contiguous along m, and rows of b are read in place."""
    near = 1 < a_step <= FAR and b[1] == 1 and b[0] <= FAR
    return near and m >= ROWS and m * n <= SMALL


@inlined
def _found(m, n, k, a_step, b, c_column):
    """Return the approximate cycles of the product with tiles' rows along m and lanes along n, two vectors per cycle.

    It also returns how to compute the product, as in `order`, since each further function takes long to compile.
    """
    a_copied = a_step != 1
    rows, few, lying = _rows_of(m), _few(m, n, a_copied), _is_lying(m, n, a_step, b)
    near = b[1] == 1 and (lying or is_near(min(k, DEPTH), b[0]))
    tiles = -(-m // rows) * rows * (-(-(n - few) // LANES) + few / LANES) * k / 2
    copies = (a_copied and not lying) * COPY * m * k * max(1, -(-(n - WIDTH + 1) // (PANELS * WIDTH)))
    packs = (TURN if b[1] != 1 else PACK * (not near)) * n * k
    return tiles + copies + packs + (c_column != 1) * STORE * m * n * -(-k // DEPTH), (rows, few, lying, near)


@inlined
def order(m, n, k, a, b, c):
    """Return whether C^T = B^T A^T takes less time than C = A B, and how to compute the faster of them.

    The latter is the rows of a tile, the columns that are multiplied one by one, whether rows of both operands are read
    in place along the sum, and whether rows of b are. a, b, c: strides of rows and columns.
    """
    one_way, found = _found(m, n, k, a[1], b, c[1])
    other_way, other = _found(n, m, k, b[0], (a[1], a[0]), c[0])
    return (True, other) if other_way < one_way else (False, found)
