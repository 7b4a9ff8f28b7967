"""Regular expressions and msgspec types by which numbers in input are checked."""

import math
import sys
from typing import Annotated, Any

import msgspec

#: An integer in an id: ASCII digits without leading zeros, so that equal problems have equal ids.
WHOLE = "(?:0|[1-9][0-9]*)"
DECIMAL = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_MOST = sys.float_info.max
Finite = Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=_MOST)]
#: 128 random bits in hexadecimal for each process of a row.
Entropy = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32}( [0-9a-f]{32})*)?$")]


def finite(value: Any) -> Any:
    """Return None for NaN and infinity, which count as unknown, and any other value unchanged."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
