"""Run the emulator on cases that are not in the sweep, with the sweep's programs where possible."""

from functools import cache, partial
from itertools import islice

from kernelmark.bench.emulator.build import compiler, missing_tool
from kernelmark.bench.emulator.sweep import EmulatedCase, complaints, entries
from support.tools import needed

#: By the kernel's id, what returns the cases that tests of this session are parametrised with.
_selected = {}


def select(items):
    """Take the cases of a session's tests: a `case`, that of an `end`, and `every` one that a partial returns.

    The first argument of the partial is the kernel's id, so that cases are made when a test of their kernel runs.
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
    """Return the entries to compile for cases of one kernel: what the whole session needs of it, if that has them all.

    A program takes seconds to compile, so that tests share one.
    """
    names = entries(list(every))
    shared = _shared(every[0].kernel.id) if every else ()
    return shared if set(names) <= set(shared) else names


@cache
def _shared(kernel):
    return entries([case for cases in _selected.get(kernel, ()) for case in cases()])


def host_compiler():
    """Return the C++ compiler; without one the test is skipped, and in CI it fails."""
    needed(missing_tool())
    return compiler()


def wrong_in_emulator(every):
    """Return what is wrong with these cases of one kernel, at most three complaints a case.

    Cases with the same launches, whose tiles differ only in a limit that none of them reaches, run once.
    """
    host_compiler()
    names = program_entries(every)
    different = {(case.problem, case.device.capability, repr(case.calls)): case for case in every}.values()
    return [text for case in different for text in islice(complaints(case, names), 3)]
