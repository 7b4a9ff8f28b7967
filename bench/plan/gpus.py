"""The GPUs that a user names by their numbers: `all`, or `0,2`."""

import re


def parse_gpus(text: str) -> tuple[int, ...]:
    """Return the numbers, each once, in their order; none for all. Raises ValueError."""
    if text == "all":
        return ()
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        raise ValueError(f"is {text!r}, expected all, or numbers of GPUs separated by commas, such as 0,1")
    return tuple(sorted(set(map(int, text.split(",")))))


def chosen_gpus(numbers: tuple[int, ...], present: list[str]) -> tuple[str, ...]:
    """Return the UUIDs of these numbers among those present; all for no number. Raises ValueError."""
    if missing := [number for number in numbers if number >= len(present)]:
        there = f"0 to {len(present) - 1}" if present else "none"
        raise ValueError(f"there is no GPU {missing[0]} here, expected {there}")
    if not present:
        raise ValueError("there is no GPU here; `kernelmark doctor` shows what is usable")
    return tuple(present[number] for number in numbers) or tuple(present)
