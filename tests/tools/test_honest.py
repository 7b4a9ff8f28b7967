"""Right results of drawn problems: none is called wrong, and a checker that is too strict is found out."""

from collections import Counter

import pytest

from kernelmark.bench.plan import verdict

TOOL = "honest"


@pytest.mark.long
def test_no_right_result_of_drawn_problems_is_called_wrong(tool, registry):
    seen = Counter()
    assert list(tool.alarms(registry, 120, 7, seen)) == []
    assert {name.partition("/")[0] for name in seen if "/" in name} == set(registry.operations)


def test_a_bound_that_is_too_tight_raises_alarms(tool, registry, monkeypatch):
    monkeypatch.setattr(verdict.Bound, "rms_limit", lambda *_: 0.0)
    assert "rms error" in next(tool.alarms(registry, 200, 0, Counter()))


def test_problems_are_drawn_alike_from_one_seed(tool, registry):
    first, again, other = ([p.id for p in tool.problems(registry, 40, seed)] for seed in (3, 3, 4))
    assert first == again != other


def test_how_large_problems_are_judged_is_as_before_when_a_search_is_left_early(tool, registry, monkeypatch):
    for module in tool.REFERENCES:
        monkeypatch.setattr(module, "WHOLE_REFERENCE_MACS", 12345)
    monkeypatch.setattr(verdict.Bound, "rms_limit", lambda *_: 0.0)
    found = tool.alarms(registry, 200, 0, Counter())
    next(found)
    found.close()
    assert [module.WHOLE_REFERENCE_MACS for module in tool.REFERENCES] == [12345, 12345]
