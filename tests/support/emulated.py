"""Run the emulator on cases that are not in the sweep, with the sweep's programs where possible."""

from functools import cache, partial
from itertools import islice

from kernelmark.bench.emulator.build import compiler, missing_tool
from kernelmark.bench.emulator.sweep import EmulatedCase, complaints, entries
from support.tools import needed

#: Functions that return the cases of this session's tests, by kernel id.
_selected = {}


def select(items):
    """Register the cases of a session's tests, from their parameters: `case`, `end` (an End) or `every` (a partial).

    A partial returns cases when a test of their kernel runs; its first argument is the kernel's id.
    """
    _selected.clear()
    _shared.cache_clear()
    for item in items:
        case, end, every = map(getattr(getattr(item, "callspec", None), "params", {}).get, ("case", "end", "every"))
        if isinstance(case, EmulatedCase):
            _selected.setdefault(case.kernel.id, []).append(lambda case=case: [case])
        if end:
            _selected.setdefault(end.kernel, []).append(lambda end=end: [end.case])
        if isinstance(every, partial):
            _selected.setdefault(every.args[0], []).append(every)


def program_entries(every):
    """Return the entries to compile: those of all the session's cases of this kernel, or of `every` if it has others.

    A program takes seconds to compile, so tests share one program.
    """
    names = entries(list(every))
    shared = _shared(every[0].kernel.id) if every else ()
    return shared if set(names) <= set(shared) else names


@cache
def _shared(kernel):
    return entries([case for cases in _selected.get(kernel, ()) for case in cases()])


def host_compiler():
    """Return the C++ compiler. If there is none, skip the test; in CI, fail it."""
    needed(missing_tool())
    return compiler()


def wrong_in_emulator(every):
    """Return the complaints about cases of one kernel, at most three per case.

    Cases with equal launches (their tiles differ only in a limit that they do not reach) are run once.
    """
    host_compiler()
    names = program_entries(every)
    different = {(case.problem, case.device.capability, repr(case.calls)): case for case in every}.values()
    return [text for case in different for text in islice(complaints(case, names), 3)]
