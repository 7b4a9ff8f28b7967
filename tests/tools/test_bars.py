"""The benchmarks of `make bars`, on few rows."""

from subprocess import CalledProcessError

import pytest

from scripts import script


@pytest.fixture
def small(monkeypatch):
    """Return a function that gives a benchmark with other numbers than its own."""

    def of(name, **numbers):
        tool = script(name)
        for number, value in numbers.items():
            monkeypatch.setattr(tool, number, value)
        return tool

    return of


@pytest.mark.long
def test_every_command_reads_both_stores_and_tells_what_it_took(small):
    tool = small("scale_bars", FEW=20, MANY=60)
    found = list(tool.scale_bars())
    assert len(found) == 2 * len(tool.COMMANDS)
    assert [promise.partition(":")[0] for promise, *_ in found[::2]] == [" ".join(words) for words in tool.COMMANDS]
    assert all("20 rows" in promise for promise, *_ in found[::2])
    assert all("60 rows" in promise and "MB" in text for promise, text, _ in found[1::2])


def test_a_command_that_fails_is_no_figure(tmp_path):
    with pytest.raises(CalledProcessError):
        script("took").kernelmark("show", "base", "--db", str(tmp_path / "absent.db"))


@pytest.mark.long
def test_every_command_is_measured_over_the_same_rows(small):
    found = list(small("many_bars", ROWS=40, CASES=3).many_bars())
    names = [promise.partition(":")[0] for promise, *_ in found]
    assert names == ["show", "export", "import", "crossover", "report", "run", "verify"]
    assert all("40 rows" in promise and "MB" in text for promise, text, _ in found[:5])
    assert all("3 no-ops" in promise and "a second" in text for promise, text, _ in found[5:])


@pytest.mark.long
def test_two_merges_are_measured_and_what_they_make_is_compared(small):
    found = list(small("shard_bars", CASES=12, TIMES=2, SHARDS=2, LEAST_PER_S=0).shard_bars())
    assert [promise.partition(":")[0] for promise, *_ in found[:2]] == ["merge", "merge again"]
    assert found[2][1:] == ("24 rows, equal: True", True)
