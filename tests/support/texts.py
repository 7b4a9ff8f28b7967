"""Helpers that return the text that a function writes to a stream, and the rows of a CSV file."""

import csv
import io
from pathlib import Path


def text_of(write):
    out = io.StringIO(newline="")
    write(out)
    return out.getvalue()


def csv_rows(source):
    text = source.read_text() if isinstance(source, Path) else source
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
