"""The benchmark of 200,000 rows and of no-ops, on few."""

import pytest


@pytest.fixture
def tool(script, monkeypatch):
    found = script("many_bars")
    monkeypatch.setattr(found, "ROWS", 40)
    monkeypatch.setattr(found, "CASES", 3)
    return found


@pytest.mark.long
def test_every_command_is_measured_over_the_same_rows(tool):
    found = list(tool.many_bars())
    names = [promise.partition(":")[0] for promise, *_ in found]
    assert names == ["show", "export", "import", "crossover", "report", "run", "verify"]
    assert all("40 rows" in promise and "MB" in text for promise, text, _ in found[:5])
    assert all("3 no-ops" in promise and "a second" in text for promise, text, _ in found[5:])
