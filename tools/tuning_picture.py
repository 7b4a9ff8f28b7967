"""The picture of docs/tuning.md: what a search of the tiles of a transposition has measured, from its rows.

    PYTHONPATH=.:tools python tools/tuning_picture.py [--db FILE]

It takes the latest search of the store, and tunes where there is none: four minutes on two quiet cores.
"""

import argparse
import re
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from figures import slim
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.figures import draw
from kernelmark.bench.report.figures.tunables import tunables
from kernelmark.bench.report.run_data import RunData
from took import COMMAND

ROOT = Path(__file__).resolve().parents[1]
PICTURE, PAGE = ROOT / "docs" / "pictures" / "tuning.svg", ROOT / "docs" / "tuning.md"
KERNEL, PROBLEM = "transpose/numba.blocked", "transpose/m2048n26752/f32/out"
#: The line of the page that shows the picture, and the paragraph after it, which describes it.
_SHOWN = re.compile(r"(!\[[^]]*\]\(pictures/tuning\.svg\)\n\n).*?(?=\n\n)", re.DOTALL)
LINE = 120


def main() -> None:
    """Tune if need be, draw, and describe the picture below it."""
    parser = argparse.ArgumentParser(description="Draw the picture of docs/tuning.md.")
    parser.add_argument("--db", type=Path, help="store that keeps what is measured; one of its own if left out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = asked.db or Path(folder, "tuning.db")
        if not db.is_file():
            words = ["tune", KERNEL, PROBLEM, "--spread", "0", "--db", str(db), "--tuned", f"{folder}/tuned.json"]
            subprocess.run([*COMMAND, *words], cwd=ROOT, check=True)
        with closing(Store(db, create=False)) as store:
            caption = drawn(store, Path(folder))
    PAGE.write_text(described(PAGE.read_text(encoding="utf-8"), caption), encoding="utf-8")


def drawn(store: Store, folder: Path) -> str:
    """Write the picture of the latest search of a store, and return the words for it."""
    tuned = [run for run in store.runs() if run["plan"].get("tunes")]
    searched = [run["run_id"] for run in tuned if not run["plan"]["tunes"]["search"]]  # a race names its search
    (figure,) = draw([tunables(RunData(store, searched[-1]))], folder, pdf=False)
    PICTURE.write_text(slim(figure.svg), encoding="utf-8")
    return figure.caption


def described(page: str, caption: str) -> str:
    """Return the page with the words for the picture below it, in lines of the page's length."""
    lines = [""]
    for word in caption.split():
        if len(lines[-1]) + len(word) >= LINE:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return _SHOWN.sub(lambda found: found[1] + "\n".join(lines), page)


if __name__ == "__main__":
    main()
