"""Calls the functions that library.on_stub requests, in turn, and prints their results as JSON."""

import atexit
import gc
import importlib
import json
import os
import sys
from pathlib import Path

from stub import control
from stub.library import BEGIN
from stub.recording import RECORDED, Recorder

# The garbage of each call is collected before the next one.
values = {}
recorder = Recorder()
if recorded := os.environ.get(RECORDED):
    recorder.start()
    atexit.register(recorder.write, Path(recorded))  # registered first, so that it runs last
for name, (function, *arguments) in json.loads(sys.argv[1]).items():
    control.note(BEGIN + name)
    module, _, attribute = function.partition(":")
    values[name] = getattr(importlib.import_module(module), attribute)(*arguments)
    gc.collect()
control.note(BEGIN + "end")
print(json.dumps(values))
