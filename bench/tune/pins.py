"""Gates without a GPU: compare the figures of `inspect` and `profile` with figures pinned in a file."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.text import escaped
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.report.export import write_text
from kernelmark.bench.report.format import count
from kernelmark.bench.report.layout import paragraph
from kernelmark.bench.tune.inspect import InspectRow
from kernelmark.bench.tune.profile.view import Profile

Number = int | float
#: Figures, such as `registers`, by the name of their function or kernel.
Found = Mapping[str, Mapping[str, Number]]
#: By figure, the words after its number in a message. A larger number is worse, except for the last figure.
_WORDS = {
    "registers": "registers",
    "spill_bytes": "bytes of spills",
    "sectors": "sectors",
    "wavefronts": "wavefronts",
    "multiply_add_pct": "% multiply-adds in the main loop",
}
_MORE_IS_BETTER = "multiply_add_pct"
_MOST_BYTES = 32 * 2**20


class PinnedCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pinned figures of one command, and the compiler of the pinned code."""

    compiler: str
    pins: dict[str, dict[str, Number]]


class Pins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the `--baseline` file. commands: for each command line, the pins of its kernels."""

    commands: dict[str, PinnedCommand]


def of_rows(rows: Sequence[InspectRow]) -> PinnedCommand:
    """Return the pins of `inspect` rows."""
    pins = {}
    for row in rows:
        tile = f"@{tile_text(json.loads(row.tunables))}" if row.tunables and "@" not in row.kernel else ""
        figures: dict[str, Number] = {"registers": row.registers, "spill_bytes": row.spill_bytes}
        pins[f"{row.kernel}{tile} {row.arch} {row.entry}"] = figures
    return PinnedCommand(rows[0].compiler if rows else "", pins)


def of_profile(profile: Profile) -> PinnedCommand:
    """Return the pins of a profile: its counts and, if it has machine code, the figures of each function."""
    kernel, total = profile.counts.kernel, profile.counts.total
    pins: dict[str, dict[str, Number]] = {kernel: {"sectors": total.sectors, "wavefronts": total.wavefronts}}
    if profile.machine is None:
        return PinnedCommand("", pins)
    sass = profile.machine.sass
    for function in sass.functions:
        share = {_MORE_IS_BETTER: round(100 * function.loop.useful_share, 1)} if function.loop else {}
        figures = {"registers": function.registers, "spill_bytes": function.spill_bytes}
        pins[f"{kernel} {function.entry}"] = {**figures, **share}
    return PinnedCommand(sass.compiler, pins)


def gate(path: Path, command: str, figures: PinnedCommand, update: bool, why_unknown: str = "") -> tuple[str, bool]:
    """Compare a command's figures with its pins; with `update`, write the figures as pins instead.

    Returns the text to print, and whether a figure is worse or missing. why_unknown: why some figures are missing.
    Raises UsageError if the file has no pins of the command.
    """
    again = f"`kernelmark {command} --baseline {shlex.quote(str(path))} --update`"
    if update:
        known = _read(path).commands if path.exists() else {}
        text = json.dumps(msgspec.to_builtins(Pins({**known, command: figures})), indent=2, sort_keys=True)
        write_text(path, lambda out: print(text, file=out))
        return f"{path}: {count(len(figures.pins), 'pin')} of `{command}` written", False
    if not path.exists():
        raise UsageError(f"{path}: there is no such file; {again} creates it")
    commands = _read(path).commands
    if command not in commands:
        only_of = f", only of {', '.join(commands)}" if commands else ""
        raise UsageError(f"{path}: has no pins of `{command}`{only_of}; {again} adds them")
    pinned = commands[command]
    changes = [*_changes(pinned.pins, figures.pins, why_unknown)]
    texts = [(f"{escaped(line)}; {again} accepts it", is_worse) for line, is_worse in changes]
    worse, others = ([text for text, is_worse in texts if is_worse == kind] for kind in (True, False))
    head = f"{count(len(pinned.pins), 'pin')}: {len(worse)} worse or gone, {len(others)} better or new"
    if pinned.compiler != figures.compiler and worse + others:
        head += f"; pinned with {pinned.compiler or 'no compiler'}, now {figures.compiler or 'no compiler'}"
    return "\n".join([*worse, *others, paragraph(head)]), bool(worse)


def _read(path: Path) -> Pins:
    require_file(path, _MOST_BYTES)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Pins)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not a file of pins: {error}; --baseline FILE names another file") from None


def _changes(pinned: Found, figures: Found, why_unknown: str) -> Iterator[tuple[str, bool]]:
    """Yield a line for each figure that differs from its pin, and whether it is worse than the pin."""
    for name in dict.fromkeys((*pinned, *figures)):
        before, now = pinned.get(name, {}), figures.get(name, {})
        if name not in pinned:
            yield f"{name}: {_listed(now)}, not pinned", False
        elif name not in figures:
            yield f"{name}: {why_unknown or 'gone now'}, pinned {_listed(before)}", True
        for number, was in before.items() if name in figures else ():
            here, what = now.get(number), _WORDS.get(number, number)
            if here is None:
                yield f"{name}: none now, pinned {was:,} {what}", True
            elif here != was:
                yield f"{name}: {here:,} {what} now, pinned {was:,}", (was < here) != (number == _MORE_IS_BETTER)


def _listed(numbers: Mapping[str, Number]) -> str:
    return ", ".join(f"{value:,} {_WORDS.get(number, number)}" for number, value in numbers.items())
