"""The statuses of a result: their words are a promise to users, and a verdict against a kernel is one."""

import msgspec

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.status import AGAINST, Status


def test_the_words_are_those_of_the_contract() -> None:
    promised = ["ok", "unsupported", "wrong", "oom", "timeout", "crashed", "failed", "mistrusted"]
    assert [str(status) for status in Status] == promised


def test_what_a_machine_cannot_do_goes_against_nobody() -> None:
    assert set(Status) - AGAINST == {Status.OK, Status.UNSUPPORTED, Status.OOM}


def test_a_status_crosses_to_the_parent_as_its_word() -> None:
    sent = msgspec.msgpack.encode(Measurement(kernel="copy/a.b", status=Status.OOM))
    assert msgspec.msgpack.decode(sent)["status"] == "oom"
