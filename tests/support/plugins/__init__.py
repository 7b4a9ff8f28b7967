"""Plug-ins that tests hand to commands, by their paths."""

from pathlib import Path

HERE = Path(__file__).parent
ADVERSARIES, COUNTED, FAULTS = (str(HERE / f"{name}.py") for name in ("adversaries", "counted", "faults"))
FAKE, UNRULY = str(HERE / "fake_device.py"), str(HERE / "unruly.py")
