"""What both launchers load: a kernel of a cubin."""

from collections.abc import Mapping
from typing import NamedTuple


class CubinFunction(NamedTuple):
    """A kernel of a cubin, and the attributes to set before its first launch, by the driver's names."""

    code: bytes
    symbol: str
    settings: Mapping[str, int]
