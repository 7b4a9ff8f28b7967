"""Numbers accepted from outside: patterns of their digits, and types that msgspec checks."""

import math
import sys
from typing import Annotated, Any

import msgspec

#: A whole number as ids have it: ASCII digits, none of them a leading zero, so that equal problems have equal ids.
WHOLE = "(?:0|[1-9][0-9]*)"
#: A decimal number as files have it.
DECIMAL = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_MOST = sys.float_info.max
#: Numbers of which neither NaN nor infinity is one.
Finite = Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=_MOST)]
#: Of each process whose values a row stands for, 128 random bits in hexadecimal.
Entropy = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32}( [0-9a-f]{32})*)?$")]


def finite(value: Any) -> Any:
    """Return None in the place of NaN and infinity: an unknown is empty, never a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
