"""The benchmark of shards and their merge, on few rows."""

import pytest


@pytest.fixture
def tool(script, monkeypatch):
    found = script("shard_bars")
    for name, value in (("CASES", 12), ("TIMES", 2), ("SHARDS", 2), ("LEAST_PER_S", 0)):
        monkeypatch.setattr(found, name, value)
    return found


@pytest.mark.long
def test_two_merges_are_measured_and_what_they_make_is_compared(tool):
    found = list(tool.shard_bars())
    assert [promise.partition(":")[0] for promise, *_ in found[:2]] == ["merge", "merge again"]
    assert found[2][1:] == ("24 rows, equal: True", True)
