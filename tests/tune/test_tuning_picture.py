"""The picture of docs/tuning.md, drawn from a tuning of counted work."""

import pytest

from scripts import script

PAGE = "# Tune\n\n![Speeds](pictures/tuning.svg)\n\nOf an\nolder one.\n\nThe end.\n"


def test_the_latest_search_of_a_store_is_drawn_and_described_below_its_picture(tuned, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    tool = script("tuning_picture")
    monkeypatch.setattr(tool, "PICTURE", tmp_path / "tuning.svg")
    tuned.all("counted")
    caption = tool.drawn(tuned.store, tmp_path)
    assert caption.startswith("8 tiles; 1x is the default, ")
    assert (tmp_path / "tuning.svg").read_text().startswith("<?xml")
    page = tool.described(PAGE, caption)
    head, *lines, end = page.removesuffix("\n").split("\n\n")[1:]
    assert (head, " ".join(lines[0].split("\n")), end) == (PAGE.split("\n\n")[1], caption, "The end.")
    assert max(map(len, page.splitlines())) <= tool.LINE
    assert tool.described(page, caption) == page
