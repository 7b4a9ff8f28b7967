"""Shards: the parts of a plan that machines measure which never talk to each other."""

import re

import msgspec

MOST_SHARDS = 100_000


class Shard(msgspec.Struct, frozen=True):
    """One of `count` parts of a plan, from 1 on; 0 stands for what is merged of them. cases: of all parts together."""

    index: int
    count: int
    cases: int = 0

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> Shard:
    """Return the shard that `3/8` names. Raises ValueError."""
    found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
    if not found or not int(found[1]) <= int(found[2]) <= MOST_SHARDS:
        raise ValueError(f"is {text!r}, expected I/N with I from 1 to N, such as 3/8, and N up to {MOST_SHARDS}")
    return Shard(int(found[1]), int(found[2]))


def group_of(problem: str) -> str:
    """Return the operation and the sizes of a problem, by its id: `gemm/m64n64k64` of `gemm/m64n64k64/f32/NT`."""
    return "/".join(problem.split("/", 2)[:2])
