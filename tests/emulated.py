"""The emulator, asked about cases that the sweep does not have."""

import os
from collections.abc import Sequence
from itertools import islice

import pytest

from bench.emulator.build import missing_tool
from bench.emulator.sweep import Case, complaints, entries


def wrong_in_emulator(every: Sequence[Case]) -> list[str]:
    """Return what is wrong with these cases of one kernel, at most three complaints a case.

    Without a compiler the test is skipped; in CI it fails.
    """
    if reason := missing_tool():
        if os.environ.get("CI"):
            pytest.fail(f"{reason} (an error, since CI is set)")
        pytest.skip(reason)
    names = entries(list(every))
    return [text for case in every for text in islice(complaints(case, names), 3)]
