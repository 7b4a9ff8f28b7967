"""Calls functions in turn, as library.on_stub asks for them, and prints what they return as JSON."""

import gc
import importlib
import json
import sys
from typing import Any

from stub import control
from stub.library import BEGIN


def main() -> None:
    """Call each function with its arguments; what a call leaves is collected before the next."""
    values: dict[str, Any] = {}
    for name, (function, *arguments) in json.loads(sys.argv[1]).items():
        control.note(BEGIN + name)
        module, _, attribute = function.partition(":")
        values[name] = getattr(importlib.import_module(module), attribute)(*arguments)
        gc.collect()
    control.note(BEGIN + "end")
    print(json.dumps(values))


main()
