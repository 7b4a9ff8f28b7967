"""Limits of every CUDA device, for plans of launches."""

GRID_LIMIT = 65535  # blocks along y and z, on every compute capability
INT_LIMIT = 2**31 - 1  # sizes and leading dimensions are C ints


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)
