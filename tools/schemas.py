"""Write docs/schemas: the JSON Schema of each document that kernelmark prints."""

from pathlib import Path

from kernelmark.bench.cli.documents import DOCUMENTS, schema

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (FOLDER / f"{name}.json").write_text(schema(name), encoding="utf-8")
