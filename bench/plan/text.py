"""Make texts from outside safe for a terminal: one line of bounded length, or lines without cursor movements."""

import re

import msgspec

#: The maximum length of a complaint or a reason, in characters.
MOST = 300
#: Matches terminal commands: control sequences, strings and escapes of ECMA-48, complete or not.
_COMMANDS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x9c|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]?"
)
#: Matches characters that a terminal interprets, or that reorder or hide text.
_HIDDEN = re.compile("[\x80-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def escaped(text: str) -> str:
    r"""Return a text on one line with its control characters escaped: `\x1b[31m`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\n\t" else repr(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Return a text as one escaped line of at most MOST characters; the middle of a longer text is left out."""
    if len(text) <= MOST and len(line := escaped(text)) <= MOST:
        return line
    return f"{escaped(text[:MOST])[: MOST - 100]} ... {escaped(text[-MOST:])[-95:]}"


def as_utf8(text: str) -> str:
    r"""Return the text with bytes that are not UTF-8, which file names may have, escaped: `\udcff`."""
    return text.encode(errors="backslashreplace").decode()


def plain(text: str) -> str:
    """Return lines of text without colours, window titles, cursor movements or other control characters."""
    lines = _COMMANDS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in lines if c.isprintable() or c in "\n\t")


def as_json(value: object) -> str:
    r"""Return a value as JSON on one line; characters that are unsafe in a terminal are escaped: `\u202e`."""
    text = msgspec.json.encode(value).decode()
    return text if text.isascii() else _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def indented(value: object, indent: int = 2) -> str:
    """Return a value as indented JSON, without a newline at its end."""
    return msgspec.json.format(as_json(value), indent=indent)
