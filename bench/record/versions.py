"""Versions of a kernel that `watch` and `tune` have tried, and the registers and spills of compiled CUDA kernels."""

import hashlib
import zlib
from collections.abc import Mapping

import msgspec

from kernelmark.bench.plan.numbers import NotNegative

#: The maximum size of a version's decompressed sources, in bytes.
_MOST_BYTES = 64 * 2**20
Sources = Mapping[str, bytes]
WATCH, TUNE = "watch", "tune"


class LaunchResources(msgspec.Struct, frozen=True):
    """The highest numbers of registers and of spilled bytes per thread among the launches of a CUDA kernel."""

    registers: int
    spill_bytes: int


class VersionRatio(msgspec.Struct, frozen=True):
    """The speedup of a version over a rival that was sampled in turn with the version, and the speedup's interval.

    kernel: the rival's kernel id, or the file name of a rival given by `watch --vs`; the id of the version's own
    kernel means that kernel's default tile. For an earlier version in the store, kernel is "" and `version` its number.
    """

    ratio: NotNegative
    low: NotNegative | None
    high: NotNegative | None
    kernel: str = ""
    version: int | None = None


class KernelVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a kernel that was tried on a problem. by: the command, `watch` or `tune`. verdict: a few words.

    right: whether its result is correct, or None if it was not verified. arch: the GPU architecture to which registers
    and spill_bytes apply. time_s, low, high: the median time and its interval in seconds, or None without timing.
    compared: its speedups over the previous version and over the baseline or vendors' kernels timed in the same job.
    """

    kernel: str
    problem: str
    saved_at: str
    by: str
    verdict: str
    right: bool | None
    tile: str = ""
    device: str = ""
    mode: str = ""
    threads: int = 1
    arch: str = ""
    registers: int | None = None
    spill_bytes: int | None = None
    time_s: NotNegative | None = None
    low: NotNegative | None = None
    high: NotNegative | None = None
    processes: int = 1
    run: str = ""
    compared: tuple[VersionRatio, ...] = ()


class StoredVersion(msgspec.Struct, frozen=True):
    """A version with its number in the store, the digest of its sources, and the sources."""

    number: int
    digest: str
    version: KernelVersion
    sources: dict[str, bytes]


def digest_of(sources: Sources) -> str:
    """Return a hash of the names and the contents of a version's files."""
    digest = hashlib.sha256()
    for name, text in sorted(sources.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(text).digest())
    return digest.hexdigest()[:16]


def packed(sources: Sources) -> bytes:
    """Return the files of a version, compressed for the store."""
    return zlib.compress(msgspec.msgpack.encode(dict(sorted(sources.items()))), 9)


def kept_of(number: int, digest: str, facts: str, files: bytes) -> StoredVersion:
    """Return a version from its values in the store. Raises ValueError if they are damaged."""
    try:
        unpacked = zlib.decompressobj().decompress(files, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"the sources of version {number} are damaged: {error}") from None
    sources = msgspec.msgpack.decode(unpacked, type=dict[str, bytes])
    return StoredVersion(number, msgspec.convert(digest, str), msgspec.json.decode(facts, type=KernelVersion), sources)
