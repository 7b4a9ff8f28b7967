"""What names a person or a machine in a published report: host names, user names and UUIDs become hashes."""

import getpass
import hashlib
import re
import socket
from collections.abc import Callable, Iterable

Mask = Callable[[str], str]
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
#: A user is named in paths of homes and before the host of an address.
_HOME = re.compile(r"(/home/|/Users/)([^/\\\s\"',;:]+)")
#: A host of so few letters is likelier a word.
_SHORTEST = 4


def hashed(kind: str, text: str) -> str:
    """Return the same short name for the same text: `host-3f2a9c1b`."""
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def mask(hosts: Iterable[str] = ()) -> Mask:
    """Return what hashes UUIDs, the names of users, of this host and of those given in a text."""
    own = socket.gethostname()
    names = {name for name in (own, own.partition(".")[0], *hosts) if len(name) >= _SHORTEST and name != "localhost"}
    host = _words(names)
    user = _words([name] if (name := _user()) and name != "root" else [], r"@")

    def masked(text: str) -> str:
        text = _UUID.sub(lambda found: hashed("uuid", found[0].lower()), text)
        text = _HOME.sub(lambda found: found[1] + hashed("user", found[2]), text)
        if host:
            text = host.sub(lambda found: hashed("host", found[0]), text)
        return user.sub(lambda found: hashed("user", found[0]), text) if user else text

    return masked


def _words(names: Iterable[str], after: str = "") -> re.Pattern[str] | None:
    """Return what finds these names as whole words, the longest first; None for no name."""
    listed = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    follows = f"(?={after})" if after else r"(?![\w-])"
    return re.compile(rf"(?<![\w-])(?:{listed}){follows}") if listed else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without a name, as in containers
        return ""
