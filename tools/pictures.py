"""The pictures of README.md, from real output: the page of a run in Chromium, and `watch` finding a race.

make pictures      takes the latest run of the default store; PICTURES_ARGS="--db FILE" takes another store
"""

import argparse
import html
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
#: What is broken on purpose, and the problem it is watched on.
SOURCE, BARRIER, PROBLEM = "cuda/transpose/tiled.cu", "__syncthreads();", "transpose/m512n512/f32/out"
COLUMNS = 100
WIDTH, HEIGHT, COLOURS = 1300, 1000, 64
#: A character's width and a line's height, in units of the picture; the colours of a terminal, by code (ECMA-48).
CHARACTER, LINE, MARGIN = 7.8, 18, 16
STYLES = {"0": "", "1": "font-weight:bold", "31": "fill:#ff7b72", "32": "fill:#7ee787"}
_CODE = re.compile(r"\033\[([0-9;]*)m")


def page(which: list[str], target: Path) -> None:
    """Write the first screen of the page of a run as PNG; which: words for `report`."""
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
    """Return what `watch` prints on a terminal of a kernel that has lost its barrier."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("bench", "kernels", "cuda"):
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "kernelmark", Path(folder) / "kernelmark", symlinks=True)
        source = Path(folder) / SOURCE
        source.write_text(source.read_text().replace(BARRIER, "", 1))
        words = ["-m", "kernelmark", "watch", SOURCE, PROBLEM, "--once"]
        variables = os.environ | {"PYTHONPATH": folder, "COLUMNS": str(COLUMNS), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        main, terminal = pty.openpty()
        process = subprocess.Popen([sys.executable, *words], cwd=folder, env=variables, stdout=terminal)
        os.close(terminal)
        printed = "".join(_read(main))
        process.wait()
        return f"$ kernelmark watch {SOURCE} {PROBLEM} --once\n{printed}".replace(folder + "/", "")


def _read(fd: int) -> Iterator[str]:
    try:
        while data := os.read(fd, 65536):
            yield data.decode().replace("\r\n", "\n")
    except OSError:  # how the end of a terminal is reported
        return


def as_svg(text: str) -> str:
    """Return lines of a terminal, with bold and colours, as a picture."""
    lines = text.rstrip("\n").split("\n")
    width = 2 * MARGIN + CHARACTER * max(len(_CODE.sub("", line)) for line in lines)
    height = 2 * MARGIN + LINE * len(lines)
    body = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (i + 0.75):g}">{_spans(line)}</text>' for i, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">\n'
        "<style>text { font: 13px ui-monospace, 'DejaVu Sans Mono', monospace; "
        "fill: #e6edf3; white-space: pre }</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n{body}\n</svg>\n'
    )


def _spans(line: str) -> str:
    """Return a line with a span for each stretch of one style."""
    first, *rest = _CODE.split(line)
    spans, styles = [html.escape(first)], ""
    for codes, text in zip(rest[::2], rest[1::2], strict=True):
        for code in codes.split(";"):
            styles = ";".join(filter(None, (styles, STYLES[code]))) if code not in ("", "0") else ""
        if text:
            spans.append(f'<tspan style="{styles}">{html.escape(text)}</tspan>' if styles else html.escape(text))
    return "".join(spans)


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="*", help="the run to show [default: the latest]")
    parser.add_argument("--db", help="the store")
    asked = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    sys.path.insert(0, str(ROOT / "tests"))
    (FOLDER / "watch.svg").write_text(as_svg(watched()), encoding="utf-8")
    page([*asked.run, *(["--db", asked.db] if asked.db else [])], FOLDER / "page.png")
    print(*sorted(path.relative_to(ROOT) for path in FOLDER.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
