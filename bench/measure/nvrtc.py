"""Compile one program with NVRTC in a separate process, since NVRTC handles interrupts (SIGINT) while it compiles.

NVRTC's handler ends the process with status 4, or hangs. This file is run as a program: it reads a request from
standard input, and writes a line of JSON and the cubin to standard output. It uses only ctypes, to start quickly.
"""

import json
import signal
import sys
from ctypes import CDLL, byref, c_char_p, c_size_t, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Compile the `entries` of the request's `source`. Return a dict with log and symbols (or error), and the cubin."""
    for builtins in Path(request["library"]).parent.glob("libnvrtc-builtins.so*"):
        CDLL(str(builtins))  # NVRTC asks for it by name alone
    nvrtc = CDLL(request["library"])
    nvrtc.nvrtcGetErrorString.restype = c_char_p
    program = c_void_p()

    def call(function: str, *words: Any) -> None:
        if status := getattr(nvrtc, function)(*words):
            raise RuntimeError(nvrtc.nvrtcGetErrorString(status).decode())

    def filled(function: str) -> bytes:
        size = c_size_t()
        call(f"{function}Size", program, byref(size))
        buffer = create_string_buffer(size.value)
        call(function, program, buffer)
        return buffer.raw

    def symbol(entry: str) -> str:
        lowered = c_char_p()
        call("nvrtcGetLoweredName", program, entry.encode(), byref(lowered))
        return (lowered.value or b"").decode()

    call("nvrtcCreateProgram", byref(program), request["source"].encode(), request["name"].encode(), 0, None, None)
    for entry in request["entries"]:
        call("nvrtcAddNameExpression", program, entry.encode())
    options = [option.encode(errors="surrogateescape") for option in request["options"]]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*options))
    head = {"log": filled("nvrtcGetProgramLog").rstrip(b"\0 \n").decode(errors="replace")}
    if failed:
        return {**head, "error": nvrtc.nvrtcGetErrorString(failed).decode()}, b""
    return {**head, "symbols": {entry: symbol(entry) for entry in request["entries"]}}, filled("nvrtcGetCUBIN")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one handles interrupts
    reply, code = answer(json.load(sys.stdin))
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n" + code)
