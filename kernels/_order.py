"""How a product is computed: which way round, and what of its operands is copied; for Numba functions."""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernels._host import is_read_in_place
from kernels._numba import inlined, part
from kernels._packing import ROWS, WIDTH
from kernels._tile import LANES

#: Steps of a sum at a time, and panels of b, with one for the rest: 480 KiB together with 512-bit registers.
DEPTH, PANELS = 512, 4
#: Steps at a time where nothing is copied, for which rows of a and of b are at most FAR apart and c has SMALL elements.
SHALLOW, FAR, SMALL = 128, 512, 2**16
#: Columns beyond whole vectors that are multiplied one by one rather than as a vector that is mostly zeros.
FEW = 2

#: Cycles that it takes to store an element of c, or copy one of b or a, where they do not lie side by side in lanes;
#: and to copy one of b where they do, but rows are too far apart to be read in place.
STORE, TURN, COPY, PACK = 4, 0.85, 0.7, 0.5

is_near = part(is_read_in_place)


@part
def rows_of(m):
    """Rows of a tile, such that the last of the tiles wastes least."""
    return ROWS if -(-m // ROWS) * ROWS <= -(-m // (ROWS - 1)) * (ROWS - 1) else ROWS - 1


@part
def is_lying(m, n, a_step, b):
    """Whether rows of a, whose elements lie side by side along m, and rows of b are read as they lie."""
    near = 1 < a_step <= FAR and b[1] == 1 and b[0] <= FAR
    return near and m >= ROWS and m * n <= SMALL


@part
def few_columns(m, n, a_copied):
    """How many columns are multiplied one by one."""
    return n % LANES if n % LANES <= FEW and m >= ROWS and not a_copied else 0


@inlined
def cycles(m, n, k, a_step, b, c_column):
    """About how long the product takes with rows of tiles along m and lanes along n, at two vectors a cycle."""
    a_copied = a_step != 1
    rows, few = rows_of(m), few_columns(m, n, a_copied)
    lying = is_lying(m, n, a_step, b)
    tiles = -(-m // rows) * rows * (-(-(n - few) // LANES) + few / LANES) * k / 2
    copies = (a_copied and not lying) * COPY * m * k * max(1, -(-(n - WIDTH + 1) // (PANELS * WIDTH)))
    packs = (TURN if b[1] != 1 else PACK * (not lying and not is_near(min(k, DEPTH), b[0]))) * n * k
    return tiles + copies + packs + (c_column != 1) * STORE * m * n * -(-k // DEPTH)
