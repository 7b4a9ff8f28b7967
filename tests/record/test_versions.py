"""Versions of kernels in the store: their order, their sources, and damage."""

import sqlite3
from contextlib import closing

import msgspec
import pytest

from kernelmark.bench.record.versions import Compared, KernelVersion

KNOWN = KernelVersion(
    kernel="copy/a.b", problem="copy/m3n5/f32", saved_at="t", by="watch", verdict="PASS", right=True, registers=40
)


def test_versions_come_back_in_their_order_with_their_sources(store):
    texts = [{"a.cu": b"one", "a.cuh": b"\xff"}, {"a.cu": b"two"}]
    other = msgspec.structs.replace(KNOWN, compared=(Compared(1.5, 1.4, None, version=1),))
    numbers = [store.add_version(version, text) for version, text in zip((KNOWN, other), texts, strict=True)]
    found = store.versions("copy/a.b", "copy/m3n5/f32")
    assert [(kept.number, kept.version, kept.sources) for kept in found] == [
        (numbers[0], KNOWN, texts[0]),
        (numbers[1], other, texts[1]),
    ]
    assert store.versions("copy/a.b", "copy/m3n5/f64") == []


def test_sources_are_kept_once_and_compressed_however_often_they_are_tried(store):
    for _ in range(3):
        store.add_version(KNOWN, {"a.cu": b"  b[i] = a[i];\n" * 1000})
    with closing(sqlite3.connect(store.path)) as db:
        ((count, size),) = db.execute("SELECT count(*), sum(length(files)) FROM source")
    assert count == 1
    assert size < 1000
    assert len({kept.digest for kept in store.versions("copy/a.b", "copy/m3n5/f32")}) == 1


def test_the_digest_follows_from_names_and_contents(store):
    for sources in ({"a.cu": b"one"}, {"b.cu": b"one"}, {"a.cu": b"two"}, {"a.cu": b"", "b.cu": b""}):
        store.add_version(KNOWN, sources)
    assert len({kept.digest for kept in store.versions("copy/a.b", "copy/m3n5/f32")}) == 4


def test_the_kernels_with_versions_are_named_the_latest_first(store):
    for kernel in ("copy/a.b", "copy/c.d", "copy/a.b"):
        store.add_version(msgspec.structs.replace(KNOWN, kernel=kernel), {})
    assert store.versioned() == [("copy/a.b", "copy/m3n5/f32"), ("copy/c.d", "copy/m3n5/f32")]


@pytest.mark.parametrize("damage", ["UPDATE source SET files = x'00'", "UPDATE version SET facts = '{'"])
def test_damaged_versions_are_one_line(store, complaint, damage):
    store.add_version(KNOWN, {"a.cu": b"one"})
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(damage)
    assert f"{store.path}: cannot be read: " in complaint(lambda: store.versions("copy/a.b", "copy/m3n5/f32"))
