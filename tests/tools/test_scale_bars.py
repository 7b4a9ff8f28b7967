"""Reading long runs: the benchmark of it, on short ones."""

from subprocess import CalledProcessError

import pytest


@pytest.fixture
def tool(script, monkeypatch):
    found = script("scale_bars")
    monkeypatch.setattr(found, "FEW", 20)
    monkeypatch.setattr(found, "MANY", 60)
    return found


@pytest.mark.long
def test_every_command_reads_both_stores_and_tells_what_it_took(tool):
    found = list(tool.scale_bars())
    assert len(found) == 2 * len(tool.COMMANDS)
    assert [promise.partition(":")[0] for promise, *_ in found[::2]] == [" ".join(words) for words in tool.COMMANDS]
    assert all("20 rows" in promise for promise, *_ in found[::2])
    assert all("60 rows" in promise and "MB" in text for promise, text, _ in found[1::2])


def test_a_command_that_fails_is_no_figure(tool, tmp_path):
    with pytest.raises(CalledProcessError):
        tool.measured(tmp_path / "absent.db", ("show", "base"))
