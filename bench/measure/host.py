"""The hosts that measure a run: properties that must be equal on all of them, and properties that may differ."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError


class Host(msgspec.Struct, frozen=True):
    """A host: its name, commit, Python, the versions of its libraries, and the digests of plug-ins.

    machine, environment: the facts that a run records (machine.py), which may differ from host to host.
    """

    host: str
    commit: str
    kernelmark: str
    python: str = ""
    versions: dict[str, str] = {}
    plugins: dict[str, str] = {}
    machine: dict[str, Any] = {}
    environment: dict[str, Any] = {}


def unlike(host: Host, expected: Host) -> Iterator[str]:
    """Yield `numpy is 2.3.0, expected 2.4.6` for each property that differs from the expected host's."""
    facts: list[tuple[str, str | None, str]] = [("kernelmark", host.kernelmark, expected.kernelmark)]
    facts += [("its commit", host.commit, expected.commit), ("Python", host.python, expected.python)]
    for here, there in ((host.versions, expected.versions), (host.plugins, expected.plugins)):
        facts += [(name, here.get(name), there.get(name, "none")) for name in sorted({*here, *there} if there else ())]
    for name, value, wanted in facts:
        if wanted and value != wanted:
            yield f"{name} is {value or 'missing'}, expected {wanted}"


def digests(plugins: Sequence[str]) -> dict[str, str]:
    """Return a digest of each plug-in. Raises UsageError for a file that does not exist."""
    try:
        return {plugin: hashlib.sha256(Path(plugin).read_bytes()).hexdigest()[:12] for plugin in plugins}
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be read: {error.strerror}") from None
