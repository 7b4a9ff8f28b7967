"""Command lines, drawn from the click group itself, so that a command or an option that is new is covered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
from hypothesis import strategies as st

from fuzz.inputs import Step
from fuzz.words import TEXTS, Word, once_in, values_of
from kernelmark.bench.cli.commands import cli

#: Commands that may lawfully go on for minutes.
LASTING = ("run", "verify", "claims", "selftest", "watch", "inspect", "tune", "profile")
#: After this long they are interrupted, and after so much those that are short where no one else uses the processors:
#: what is measured while others do is measured again.
PATIENCE_S, MEASURING_S = 1.0, 10.0
#: What makes a run short.
QUICK = {
    "run": ("--max-time", "0.01", "--no-ceilings", "--threads", "1", "--kernels", "*/numpy.*"),
    "verify": ("--threads", "1", "--kernels", "*/numpy.*"),
}
#: Commands that take seconds are drawn more seldom.
WEIGHTS = {
    "report": 1,
    "selftest": 1,
    "inspect": 1,
    "doctor": 1,
    "claims": 3,
    "tune": 3,
    "profile": 3,
    "watch": 2,
    "run": 8,
    "verify": 5,
    "import": 6,
}
USUAL = 6


class Call(NamedTuple):
    """The words of a command line, whether they must be refused, and after how long the command is interrupted."""

    words: tuple[str, ...]
    refused: bool = False
    patience_s: float = 0.0

    def step(self) -> Step:
        """Return the step that calls it."""
        return Step(self.words, refused=self.refused, patience_s=self.patience_s)


def joined(name: str, words: Sequence[Word], fixed: Sequence[str] = ()) -> Call:
    """Return the call of a command with these words."""
    drawn = any(word.long for word in words)
    long = name in LASTING and (drawn or name not in QUICK)
    texts = (name, *fixed, *(word.text.replace("\0", "") for word in words))
    patience_s = PATIENCE_S if long else MEASURING_S if name in QUICK else 0.0
    return Call(texts, any(word.refused for word in words), patience_s)


def names() -> list[str]:
    """The commands, each as often as it is to be drawn."""
    return [name for name in sorted(cli.commands) for _ in range(WEIGHTS.get(name, USUAL))]


@st.composite
def calls(draw: Any, names: list[str]) -> Call:
    """One of these commands with some of its options and arguments, most of them sound."""
    name = draw(st.sampled_from(names))
    command = cli.commands[name]
    words = draw(_arguments(command))
    known = [param for param in command.params if isinstance(param, click.Option)]
    usual = [option for option in known if option.required or option.name == "db"]
    options = draw(st.lists(st.sampled_from(known), max_size=4)) + [one for one in usual if not draw(once_in(10))]
    for i, option in enumerate(options):
        found = draw(_option(option))
        again = option in options[i + 1 :] and not option.multiple  # the last one counts
        words += [word._replace(refused=word.refused and not again) for word in found]
    if draw(once_in(25)):
        words += [Word(draw(st.sampled_from(["--nothing", "-", "--kernels", "-x", "--db"])), long=True)]
    return joined(name, words, QUICK.get(name, ()))


@st.composite
def _arguments(draw: Any, command: click.Command) -> list[Word]:
    words: list[Word] = []
    for param in command.params:
        if isinstance(param, click.Argument):
            most = 3 if param.nargs < 0 else 1
            least = 1 if param.required and not draw(once_in(20)) else 0
            found = draw(st.lists(values_of(param), min_size=least, max_size=most))
            # A word that begins with a hyphen would be an option.
            words += [word if word.text[:1] != "-" else word._replace(refused=False, long=True) for word in found]
    if draw(once_in(30)):
        words.append(Word(draw(TEXTS), long=True))
    return words


@st.composite
def _option(draw: Any, option: click.Option) -> list[Word]:
    name = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
    if option.is_flag:
        return [Word(name, long=True)]
    value = draw(values_of(option))
    if name.startswith("--") and draw(st.booleans()):
        return [value._replace(text=f"{name}={value.text}")]
    return [Word(name), value]


def general_calls() -> st.SearchStrategy[Call]:
    """Calls of no command, of one that is not there, for help, and of any command for its help."""
    known = st.sampled_from(sorted(cli.commands))
    return st.one_of(
        st.sampled_from([Call(()), Call(("--help",)), Call(("--version",)), Call(("-h",))]),
        st.sampled_from(["nothing", "--nothing", "", "runn", "\x1b[31m", "\udcff", "r" * 60_000]).map(
            lambda text: Call((text,), refused=True)
        ),
        known.map(lambda name: Call((name, "--help"))),
        known.map(lambda name: Call((name, "--nothing"), refused=True)),
    )
