"""FFTW's plans, with wisdom stored in the user's cache folder; pyFFTW is imported when a plan is made."""

import json
import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Array, Launch, cache_folder

#: The approximate time limit of planning, after which FFTW_ESTIMATE is used.
PLANNING_S = 5.0


class Plan(NamedTuple):
    """A transform between two arrays, and the facts about its planning that `x.chose` records.

    rigour: FFTW_MEASURE, or FFTW_ESTIMATE if planning reached its time limit. wisdom: `found` if an earlier process
    planned the transform, `new` if this process did, `none` if planning reached its time limit.
    """

    execute: Launch
    facts: dict[str, str]


def as_complex(array: Array) -> Array:
    """Return a complex view of an array whose contiguous last axis holds the real and imaginary parts."""
    view: Array = array.view(np.result_type(array.dtype, np.complex64))[..., 0]
    return view


def plan(
    source: Array, target: Array, axes: Sequence[int], *, threads: int = 1, inverse: bool = False, destroy: bool = False
) -> Plan:
    """Plan a transform of `source` to `target` over `axes`, without normalisation; planning overwrites both arrays.

    The arrays' types determine the kind of transform. Real to complex is forward and complex to real is inverse, and
    the complex array's last axis is halved. `inverse` matters only for complex to complex. destroy: execution may
    overwrite `source`; complex to real over several axes always does. Execution on one thread holds the GIL, so use
    `threads`, not several plans, to run in parallel. Raises pyFFTW's exceptions.
    """
    backward = inverse or np.isrealobj(target)
    options: dict[str, Any] = {
        "axes": tuple(axes),
        "direction": "FFTW_BACKWARD" if backward else "FFTW_FORWARD",
        "threads": threads,
    }
    extra = ("FFTW_DESTROY_INPUT",) if destroy else ()
    known, key = _wisdom(), (_layout(source), _layout(target), source is target, *options.values(), extra)
    if key not in known.facts:
        known.facts[key] = known.learn(source, target, options, extra)
    facts = known.facts[key]
    return Plan(_pyfftw().FFTW(source, target, flags=(facts["rigour"], *extra), **options).execute, facts)


def _layout(array: Array) -> tuple[Any, ...]:
    """Return the properties of an array that its plans depend on: shape, strides, type and alignment."""
    return array.shape, array.strides, array.dtype.str, array.ctypes.data % 64


@lru_cache
def _pyfftw() -> Any:
    import pyfftw  # type: ignore[import-untyped]

    return pyfftw


class Wisdom:
    """Plans that FFTW has measured, stored in a file for this pyFFTW and this CPU."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.facts: dict[tuple[Any, ...], dict[str, str]] = {}
        self.read()

    def read(self) -> None:
        """Load the plans in the file; a damaged file, or one of another build, is ignored."""
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
            _pyfftw().import_wisdom(tuple(text.encode() for text in json.loads(self._file.read_text("ascii"))))

    def learn(self, source: Array, target: Array, options: dict[str, Any], extra: tuple[str, ...]) -> dict[str, str]:
        """Plan a transform unless its plan is known, and return the fields `rigour` and `wisdom`."""
        measured = ("FFTW_MEASURE", *extra)
        if self._has(source, target, measured, options):
            return {"rigour": "FFTW_MEASURE", "wisdom": "found"}
        _pyfftw().FFTW(source, target, flags=measured, planning_timelimit=PLANNING_S, **options)
        # FFTW does not report that it reached its time limit, but then it has not stored the plan.
        if not self._has(source, target, measured, options):
            return {"rigour": "FFTW_ESTIMATE", "wisdom": "none"}
        self.write()
        return {"rigour": "FFTW_MEASURE", "wisdom": "new"}

    def _has(self, source: Array, target: Array, flags: tuple[str, ...], options: dict[str, Any]) -> bool:
        try:
            _pyfftw().FFTW(source, target, flags=(*flags, "FFTW_WISDOM_ONLY"), **options)
        except RuntimeError:
            return False
        return True

    def write(self) -> None:
        """Write the plans, merged with plans that other processes have written; the file is replaced atomically.

        If the folder cannot be written, the next process plans again.
        """
        import tempfile

        self.read()
        text = json.dumps([part.decode("ascii") for part in _pyfftw().export_wisdom()])
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=".writing-")
            with os.fdopen(handle, "w") as out:
                out.write(text)
            Path(name).replace(self._file)


@lru_cache
def _wisdom() -> Wisdom:
    names = f"{_pyfftw().__version__} {_pyfftw().fftw_version} {_cpu()}"
    return Wisdom(cache_folder() / f"fftw-wisdom-{re.sub(r'[^A-Za-z0-9.]+', '-', names)}.json")


def _cpu() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line.partition(":")[2] for line in lines if line.startswith("model name")), platform.machine())
    return platform.processor() or platform.machine()
