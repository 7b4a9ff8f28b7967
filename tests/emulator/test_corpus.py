"""The proof of the checker: every planted bug is found for what it is, and no correct kernel is accused."""

import pytest

from emulator.corpus_table import Planted, findings, planted
from emulator.planted import SETUPS
from kernelmark.bench.emulator.report import Diagnostic

BUGS = list(planted())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_planted_bug_is_found(bug: Planted) -> None:
    found = findings(bug.file, bug.number)
    kinds = {entry.kind if isinstance(entry, Diagnostic) else entry for entry in found}
    assert kinds & set(bug.kinds), f"expected one of {bug.kinds}, found {sorted(kinds)}:\n" + "\n".join(map(str, found))
    for entry in found:
        if isinstance(entry, Diagnostic) and entry.kind != "not-written":
            assert entry.file.endswith(f"{bug.file}.cu"), f"names no line: {entry}"
            assert entry.line > 0, f"names no line: {entry}"


@pytest.mark.parametrize("name", SETUPS)
def test_correct_kernel_is_not_accused(name: str) -> None:
    found = findings(name, 0)
    assert not found, "\n".join(map(str, found))


def test_corpus_is_as_large_as_promised() -> None:
    assert len(BUGS) >= 180
    assert len(SETUPS) >= 29
