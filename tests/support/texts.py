"""What functions write to a stream, and the rows of CSV."""

import csv
import io
from pathlib import Path


def text_of(write):
    """What a function writes to the stream that it is given."""
    out = io.StringIO(newline="")
    write(out)
    return out.getvalue()


def csv_rows(source):
    """The rows of a text or a file, as cells by column."""
    text = source.read_text() if isinstance(source, Path) else source
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
