"""Records the calls that a process executes in bench and kernels, and finds functions of packages left uncalled."""

import dis
import json
import os
import sys
import threading
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Environment variable that names the file to write.
RECORDED = "KM_STUB_CALLS"
FOLDERS = (f"{ROOT}/bench/measure/", f"{ROOT}/bench/run/", f"{ROOT}/bench/selftest/", f"{ROOT}/kernels/")


class Recorder:
    """Traces functions of FOLDERS until all of their call instructions have been recorded."""

    def __init__(self):
        self._places = set()
        self._left = {}

    def start(self):
        threading.settrace(self._called)
        sys.settrace(self._called)

    def write(self, path):
        sys.settrace(None)
        path.write_text(json.dumps(sorted(self._places)))

    def _called(self, frame, event, argument):
        code = frame.f_code
        if code not in self._left:
            self._left[code] = _ends(code) if _file(code.co_filename).startswith(FOLDERS) else {}
        if not self._left[code]:
            return None
        frame.f_trace_opcodes = True
        return self._instruction

    def _instruction(self, frame, event, argument):
        if event == "opcode" and (place := self._left[frame.f_code].pop(frame.f_lasti, None)):
            self._places.add((str(Path(_file(frame.f_code.co_filename)).relative_to(ROOT)), *place))
        return self._instruction


@cache
def _file(name):
    return os.path.realpath(name)


def _ends(code):
    """Return the end of each call in a function's source (line, column), by the offset of its instruction."""
    call_ends = {}
    for instruction in dis.get_instructions(code):
        where = instruction.positions
        if instruction.opname.startswith("CALL") and where and where.end_lineno and where.end_col_offset:
            call_ends[instruction.offset] = (where.end_lineno, where.end_col_offset)
    return call_ends


#: Packages whose functions run on the stub, and packages that cannot: CuPy is replaced by a fake, and cuda.pathfinder
#: looks for cuBLAS and cuDNN.
ON_STUB = ("cuda.core.", "cuda.bindings.", "libcuda.", "pycuda.")
SIGNATURE_ONLY = ("cuda.pathfinder.", "cupy.", "cudnn.", "libcublas.", "libcudnn.", "nvmath.", "pynvml.")


def recorded_in(folder):
    """Return the environment variable that makes a process on the stub record its calls in the folder."""
    return {RECORDED: str(folder / "calls.json")}


def unexecuted(folder, packages):
    """Return functions of these packages that our code calls, but that no recorded process executed.

    Also return packages of which no function is called, and functions of packages that are neither in ON_STUB nor in
    SIGNATURE_ONLY.
    """
    import conformance

    places = {tuple(place) for place in json.loads((folder / "calls.json").read_text())}
    executed = {}
    for use in conformance.all_uses():
        if use.arguments is not None:
            executed[use.name] = executed.get(use.name, False) or (use.file, *use.end) in places
    exempt = (*set(ON_STUB).difference(packages), *SIGNATURE_ONLY)
    unused = [package for package in packages if not any(name.startswith(package) for name in executed)]
    return [*unused, *sorted(name for name, done in executed.items() if not (done or name.startswith(exempt)))]
