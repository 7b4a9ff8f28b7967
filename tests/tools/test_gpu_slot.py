"""The process that carries tasks out: what counts as an answer, and what is begun before the slot ends."""

import pytest

from kernelmark.bench.measure.timing import now

TOOL = "gpu_slot"
LOST = "not finished: ended after 2 s without an answer"


@pytest.fixture
def slot(tool, tmp_path):
    return tool.Slot(tool.Settings(str(tmp_path)))


def asked(tool, left_s, kind="emulator", limit_s=120.0):
    """Return a question of two tasks so long before the end of the slot."""
    tasks = [
        tool.Task(name=f"{kind} {kernel}", kind=kind, value=1.0, digest="d", seconds=0.6, kernels=(kernel,))
        for kernel in ("a", "b")
    ]
    return tool.Question(tool.Settings(""), now() + left_s, tuple(tasks), limit_s)


@pytest.mark.parametrize(("left_s", "failed"), [(30.0, {}), (1000.0, {"emulator a": LOST})])
def test_a_comparison_that_took_too_long_is_no_answer(tool, slot, monkeypatch, tmp_path, left_s, failed):
    """A task is open where the end of the slot left it little time, and has failed where there was enough."""
    monkeypatch.setattr(tool, "compare", lambda kernels, until_s: [f"a: {LOST}", "b: agree on x"])
    reply = slot.compared(asked(tool, left_s))
    assert (reply.done, reply.failed, reply.cut) == ({"emulator b": "agree on x"}, failed, not failed)
    assert (tmp_path / "emulator.md").read_text() == "# Emulator and device\n\n- b: agree on x\n"


@pytest.mark.parametrize(
    ("left_s", "kind", "begun"), [(10.0, "emulator", 0), (15.9, "emulator", 1), (10.0, "verify", 2)]
)
def test_comparisons_are_begun_only_where_the_emulator_can_be_compiled_too(
    tool, slot, monkeypatch, left_s, kind, begun
):
    monkeypatch.setattr(slot, "carry_out", lambda asked: tool.Reply({task.name: "" for task in asked.tasks}))
    reply = tool._reply(slot, asked(tool, left_s, kind))
    assert (len(reply.done), reply.passed) == (begun, not begun)
