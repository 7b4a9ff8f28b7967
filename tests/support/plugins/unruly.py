"""A plug-in whose code outside of kernels' calls hangs: methods of an operation, and functions in declarations."""

import time
from typing import ClassVar, Literal

import numpy as np

from kernelmark import Dim, Operand, Problem, compare, kernel, operation


def hang(*_):
    time.sleep(1000)


@operation("stall")
class StallProblem(Problem, frozen=True, kw_only=True):
    """A copy of A to B; the method named in `hangs` never returns."""

    sizes: ClassVar[tuple[str, ...]] = ("m",)

    m: Dim
    dtype: Literal["f32"]
    hangs: Literal["nowhere", "operands", "reference", "check", "flop"] = "nowhere"

    def words(self):
        return [] if self.hangs == "nowhere" else [self.hangs]

    @classmethod
    def parse_words(cls, words):
        return dict(zip(("hangs",), words, strict=False))

    def operands(self):
        self._reach("operands")
        return (Operand("a", (self.m,), self.dtype, "in"), Operand("b", (self.m,), self.dtype, "out"))

    def reference(self, inputs, rng):
        self._reach("reference")
        return inputs["a"].astype(np.float64)

    def check(self, outputs, reference, numerics):
        self._reach("check")
        return compare("b", outputs["b"], reference, 0.0, self.dtype)

    @property
    def flop(self):
        self._reach("flop")
        return 0

    def _reach(self, method):
        if self.hangs == method:
            hang()


class Arithmetic(dict[str, str]):
    """Declared numerics that hang when they are looked up."""

    def __getitem__(self, storage):
        hang()
        return super().__getitem__(storage)


def declare(name, **options):
    def set_up(problem, x):
        def launch():
            np.copyto(x.b, x.a)
            time.sleep(3e-3)

        return launch

    kernel("stall", provider="bad", device="cpu", name=name, **{"numerics": "exact", **options})(set_up)


declare("honest")
declare("honest2")
declare("executed", executed=hang)
declare("supports", supports=hang)
declare("valid", tunables={"T": (1, 2)}, valid=hang)
declare("numerics", numerics=Arithmetic(f32="exact"))
