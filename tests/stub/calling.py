"""Calls functions in turn, as library.on_stub asks for them, and prints what they return as JSON."""

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

# What a call leaves is collected before the next.
values = {}
recorder = Recorder()
if recorded := os.environ.get(RECORDED):
    recorder.start()
    atexit.register(recorder.write, Path(recorded))  # the first one runs last, after what libraries do at exit
for name, (function, *arguments) in json.loads(sys.argv[1]).items():
    control.note(BEGIN + name)
    module, _, attribute = function.partition(":")
    values[name] = getattr(importlib.import_module(module), attribute)(*arguments)
    gc.collect()
control.note(BEGIN + "end")
print(json.dumps(values))
