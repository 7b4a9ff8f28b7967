"""Make the pictures of README.md from real output: the page of a run in Chromium, and `watch` finding a race.

make pictures      takes the latest run of the default store; PICTURES_ARGS="--db FILE" takes another store
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
#: The source, the statement that is removed from it on purpose, and the problem that `watch` is given.
SOURCE, BARRIER, PROBLEM = "cuda/transpose/tiled.cu", "__syncthreads();", "transpose/m512n512/f32/out"
COLUMNS = 100
WIDTH, HEIGHT, COLOURS = 1300, 1000, 64


def page(which: list[str], target: Path) -> None:
    """Write the first screen of a run's page as PNG. which: arguments of `report`."""
    from PIL import Image

    from browser import chromium

    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "kernelmark", "report", "--out", folder]
        subprocess.run([*words, *which], cwd=ROOT, check=True)
        shot = Path(folder) / "page.png"
        with chromium() as driver:
            driver.set_window_size(WIDTH, HEIGHT)
            driver.get(Path(folder, "index.html").as_uri())
            driver.save_screenshot(str(shot))
        with Image.open(shot) as picture:
            picture.convert("RGB").quantize(COLOURS).save(target, optimize=True)


def watched() -> str:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("bench", "kernels", "cuda"):
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "kernelmark", Path(folder) / "kernelmark", symlinks=True)
        source = Path(folder) / SOURCE
        source.write_text(source.read_text().replace(BARRIER, "", 1))
        command = f"{sys.executable} -m kernelmark watch {SOURCE} {PROBLEM} --once"
        variables = os.environ | {"PYTHONPATH": folder, "COLUMNS": str(COLUMNS), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        on_terminal = ["script", "--quiet", "--command", command, "/dev/null"]
        ended = subprocess.run(on_terminal, cwd=folder, env=variables, capture_output=True, text=True, check=True)
        return f"$ kernelmark watch {SOURCE} {PROBLEM} --once\n{ended.stdout}".replace(folder + "/", "")


def as_svg(text: str) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(Text.from_ansi(text))
    drawn = console.export_svg(title="kernelmark watch")
    return drawn.replace("<svg ", '<svg xml:space="preserve" ', 1)  # librsvg drops spaces that a line begins with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="*", help="the run to show [default: the latest]")
    parser.add_argument("--db", help="the store")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "watch.svg").write_text(as_svg(watched()), encoding="utf-8")
    page([*options.run, *(["--db", options.db] if options.db else [])], FOLDER / "page.png")
    print(*sorted(path.relative_to(ROOT) for path in FOLDER.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
