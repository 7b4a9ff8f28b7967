"""Write docs/schemas: the JSON Schema of each document that kernelmark prints."""

from pathlib import Path

from kernelmark.bench.cli.documents import DOCUMENTS, schema

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"


def main() -> None:
    """Write a file for each document."""
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (FOLDER / f"{name}.json").write_text(schema(name), encoding="utf-8")


if __name__ == "__main__":
    main()
