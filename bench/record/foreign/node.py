"""Values of a JSON file with their place in it, so that a complaint about one can name it."""

import math
from typing import Any, NoReturn

from kernelmark.bench.plan.errors import UsageError

#: By how much a mean may exceed the largest of equal numbers.
ROUNDING = 1e-9


class JsonNode:
    """A value of a file and its place in it, `benchmarks[3].stats.median`. Every method raises UsageError."""

    def __init__(self, value: Any, file: str, place: str = "") -> None:
        self.value, self._file, self._place = value, file, place

    def refuse(self, expected: str) -> NoReturn:
        """Raise a complaint in one line about what is wrong here."""
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise UsageError(f"{self._file}: {self._place or 'the whole'} is {shown}, expected {expected}")

    def holding(self, value: Any) -> "JsonNode":
        """Return the same place with another value."""
        return JsonNode(value, self._file, self._place)

    def get(self, *keys: str) -> "JsonNode | None":
        """Return what stands under these keys, one inside the other; None where one is absent or null."""
        node = self
        for key in keys:
            if not isinstance(node.value, dict):
                node.refuse("an object")
            if node.value.get(key) is None:
                return None
            node = JsonNode(node.value[key], self._file, f"{node._place}.{key}".lstrip("."))
        return node

    def need(self, *keys: str) -> "JsonNode":
        """Return what stands under these keys."""
        if (found := self.get(*keys)) is None:
            what = ".".join(filter(None, (self._place, *keys)))
            raise UsageError(f"{self._file}: {what} is missing; without it there is no row")
        return found

    def items(self, key: str) -> list["JsonNode"]:
        """The elements of the list under this key; none where it is absent or null."""
        found = self.get(key)
        if found is None:
            return []
        if not isinstance(found.value, list):
            found.refuse("a list")
        return [JsonNode(value, self._file, f"{found._place}[{i}]") for i, value in enumerate(found.value)]

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            self.refuse("a string")
        return str(self.value)

    def number(self, above: float = -math.inf) -> float:
        """A finite number above a bound; also written as a string, which is how nvbench writes its numbers."""
        try:
            if isinstance(self.value, bool):
                raise ValueError
            found = float(self.value)
        except (TypeError, ValueError, OverflowError):
            self.refuse("a number")
        if not (math.isfinite(found) and found > above):
            self.refuse("a finite number" if above == -math.inf else f"a finite number above {above:g}")
        return found

    def refuse_above(self, most: "JsonNode | None") -> None:
        """Refuse a number that is above the largest of those that it comes from, but for rounding."""
        if most is not None and self.number() > most.number() * (1 + ROUNDING):
            self.refuse(f"at most the largest, {most.number()!r}")

    def integer(self) -> int:
        """A count: a whole number from 0 to 2^63 - 1, the largest that the store keeps."""
        found = self.number()
        if not (found.is_integer() and 0 <= found < 2**63):
            self.refuse("a whole number from 0 to 2^63 - 1")
        return int(found)


def number_under(node: JsonNode, *keys: str, above: float = -math.inf) -> float | None:
    """The number under these keys; None where it is absent or null."""
    found = node.get(*keys)
    return None if found is None else found.number(above)


def text_under(node: JsonNode, *keys: str) -> str:
    """The string under these keys; empty where it is absent or null."""
    found = node.get(*keys)
    return "" if found is None else found.text()
