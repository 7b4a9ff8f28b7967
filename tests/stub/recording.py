"""Records which calls in bench and kernels are executed in this process, by the places where they end in the source."""

import dis
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Environment variable that names the file to write.
RECORDED = "KM_STUB_CALLS"
FOLDERS = (f"{ROOT}/bench/measure/", f"{ROOT}/bench/run/", f"{ROOT}/bench/selftest/", f"{ROOT}/kernels/")


class Recorder:
    """Traces the functions of FOLDERS; every instruction of these that calls is noted."""

    def __init__(self) -> None:
        self._places: set[tuple[str, int, int]] = set()

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def write(self, path: Path) -> None:
        sys.settrace(None)
        path.write_text(json.dumps(sorted(self._places)))

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not _file(frame.f_code.co_filename).startswith(FOLDERS):
            return None
        frame.f_trace_opcodes = True
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "opcode" and (place := _ends(frame.f_code).get(frame.f_lasti)):
            self._places.add((str(Path(_file(frame.f_code.co_filename)).relative_to(ROOT)), *place))
        return self._instruction


@cache
def _file(name: str) -> str:
    """Return the file of a module: below `kernelmark/` they are reached through links."""
    return os.path.realpath(name)


@cache
def _ends(code: CodeType) -> dict[int, tuple[int, int]]:
    """Return where each call of a function ends in the source, last line and column, by the call's offset."""
    found = {}
    for instruction in dis.get_instructions(code):
        where = instruction.positions
        if instruction.opname.startswith("CALL") and where and where.end_lineno and where.end_col_offset:
            found[instruction.offset] = (where.end_lineno, where.end_col_offset)
    return found
