"""Hide the names of persons and machines in a published report: host names, user names and UUIDs become hashes."""

import getpass
import hashlib
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kernelmark.bench.record.columns import COLUMNS
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.records import Record

Mask = Callable[[str], str]
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
#: Matches a home folder whose user name is not a hash yet.
_HOME = re.compile(r"(/home/|/Users/)(?!user-[0-9a-f]{8}\b)([^/\\\s\"',;:]+)")
#: The length of the shortest host name that is hidden; a shorter name is more likely an ordinary word.
_SHORTEST = 4
#: Columns that identify a machine, each with the prefix of its hash.
NAMES = {"host": "host", "device_uuid": "uuid"}
_PLACES = [(COLUMNS.index(column), column) for column in NAMES]


@lru_cache
def hashed(kind: str, text: str) -> str:
    """Return a short name made from a text's hash, such as `host-3f2a9c1b`; equal texts get equal names."""
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def hidden(column: str, value: Any) -> Any:
    """Return the value of a column, hashed if it names a host or a device; a hash stays as it is."""
    kind = NAMES.get(column)
    if not kind or not value or re.fullmatch(rf"{kind}-[0-9a-f]{{8}}", value):
        return value
    return hashed(kind, value)


def records(store: Reader, run_id: str, samples: bool = False) -> Iterator[Record]:
    """Yield the rows of a run; names of hosts and devices are hashed unless `store.identifies` is true."""
    for record in store.records(run_id, samples):
        values: list[Any] = list(record.values)
        for at, column in () if store.identifies else _PLACES:
            values[at] = hidden(column, values[at])
        yield record._replace(values=tuple(values))


def nameless(store: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a row or a ceiling, with its host and device names hashed unless `store.identifies` is true."""
    return fields | {name: hidden(name, fields[name]) for name in (() if store.identifies else NAMES)}


def facts(store: Reader, run_id: str) -> dict[str, Any]:
    """Return the facts of a run; unless `store.identifies` is true, `nameless_run` hides names in them."""
    run = store.find_run(run_id)
    return {**run} if store.identifies else nameless_run(run)


def nameless_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a run, with the UUIDs of its GPUs hashed and names in environment variables masked."""
    plan, masked = {**run["plan"]}, mask()
    if isinstance(gpus := plan.get("gpus"), list):
        plan["gpus"] = [hidden("device_uuid", str(gpu)) for gpu in gpus]
    if isinstance(shards := plan.get("shards"), list):  # of a merged run
        plan["shards"] = [{**shard, "environment": _nameless(shard["environment"], masked)} for shard in shards]
    return {**run, "plan": plan, "environment": _nameless(run["environment"], masked)}


def _nameless(environment: Mapping[str, Any], masked: Mask) -> dict[str, Any]:
    variables = {name: masked(str(value)) for name, value in (environment.get("variables") or {}).items()}
    return {**environment, **({"variables": variables} if variables else {})}


def mask(hosts: Iterable[str] = ()) -> Mask:
    """Return a function that hashes the UUIDs, user names and host names in a text. hosts: names of other machines."""
    node = socket.gethostname()
    names = {name for name in (node, node.partition(".")[0], *hosts) if len(name) >= _SHORTEST and name != "localhost"}
    own_user = ""
    with suppress(KeyError, OSError):  # a user id without a name, as in containers
        own_user = getpass.getuser()
    host, user = _words(names), _words({own_user} - {"", "root"}, "(?=@)")

    def masked(text: str) -> str:
        text = _UUID.sub(lambda match: hashed("uuid", match[0].lower()), text)
        text = _HOME.sub(lambda match: match[1] + hashed("user", match[2]), text)
        text = host.sub(lambda match: hashed("host", match[0]), text)
        return user.sub(lambda match: hashed("user", match[0]), text)

    return masked


def _words(names: Iterable[str], after: str = r"(?![\w-])") -> re.Pattern[str]:
    """Return a pattern that matches each name as a whole word, longer names first; without names, it never matches."""
    listed = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"(?<![\w-])(?:{listed or '(?!)'}){after}")
