"""A selector and its answer as JSON for other programs."""

import msgspec

from kernelmark.bench.tune.select.answer import Answer
from kernelmark.bench.tune.select.model import Model, chosen
from kernelmark.bench.tune.select.regret import Regret


class SelectDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `select --json` prints. single: the kernel to use everywhere, "" where a choice is worth it.

    problems: of the training; leaves: of its tree, or the kernels that a formula chooses; choices: of how many problems
    each kernel is the choice; answer: null for a training.
    """

    op: str
    device: str
    device_name: str
    threads: int
    mode: str
    dtype: str
    precision: str
    isa: str
    runs: list[str]
    single: str
    problems: int
    leaves: int
    choices: dict[str, int]
    regret: Regret
    answer: Answer | None


_SAME = ("op", "device", "device_name", "threads", "mode", "dtype", "precision", "isa", "runs", "single", "regret")


def document(model: Model, found: Answer | None) -> str:
    """Return a `SelectDocument`."""
    made = SelectDocument(
        **{name: getattr(model, name) for name in _SAME},
        problems=len(model.measured),
        leaves=len(model.leaves),
        choices=dict(chosen(model)),
        answer=found,
    )
    return msgspec.json.format(msgspec.json.encode(made).decode()) + "\n"
