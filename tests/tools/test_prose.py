"""The rule on plain English: what it finds, where, and what it leaves alone."""

import textwrap

import pytest

TOOL = "prose"


@pytest.fixture
def found(tool, tmp_path):
    """Find what is not plain in a file with this text: pairs of line and words."""

    def find(name, text):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return [(finding.line, finding.words) for finding in tool.findings(path)]

    return find


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("The figure stands behind the table.", "behind"),
        ("Two thread counts are told apart by it.", "told apart"),
        ("What an algorithm executes is declared apart.", "declared apart"),
        ("A row is measured on so many threads.", "so many"),
        ("Padding that nobody reads is left alone.", "nobody"),
        ("Everybody's clock is read.", "Everybody's"),
        ("The doctor says what is missing.", "says"),
        ("A kernel that knows its tile is faster.", "knows"),
        ("The library does not tell its algorithm.", "does not tell"),
        ("The rows say it of their devices.", "rows say"),
        ("The session is told of each row.", "told"),
        ("What is said of a version is short.", "is said"),
        ("The command that mends it follows.", "mends"),
        ("There is one house for all kernels.", "one house"),
        ("A verdict went against a kernel.", "verdict went against"),
        ("A ratio is formed. Not on the problem itself: on its layers.", "Not on the problem itself:"),
        ("Of one process: the sign test.", "Of one process:"),
        ("| a cell | Of one process: the test |", "Of one process:"),
        ("- An item.\n- Of one process: the test.", "Of one process:"),
    ],
)
def test_a_planted_sentence_is_found(found, sentence, words):
    assert [what for _, what in found("page.md", sentence)] == [words]


@pytest.mark.parametrize(
    "sentence",
    [
        "Processes start a minute apart, apart from the first.",
        "There are so many tiles that the last wave is short.",
        "You know what the founding texts say, and who says it.",
        "The user knows the path, and the docstring says why.",
        "Of the two, the second is faster: it has no barrier.",
        "Not on a GPU.",
        "The University Of Somewhere: a place.",
        "The in-house library has one entry point.",
        "The name `nobody` and the option `--told behind` are code.",
        "An amendment is no emendation.",
    ],
)
def test_plain_sentences_are_left_alone(found, sentence):
    assert found("page.md", sentence) == []


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        ("Of all tiles", "Of"),
        ("It is the tile that", "It"),
        ("Its tiles", "Its"),
        ("Those that", "Those"),
        ("These", "These"),
        ("The same, if they", "The same"),
        ("Until they", "Until"),
        ("And those that", "And"),
        ("As many as", "As many"),
        ("So few that they", "So"),
    ],
)
def test_a_docstring_that_begins_without_a_subject_is_found(found, opening, words):
    text = f'''
    """Return one."""


    class Tile:
        """{opening} fit."""
    '''
    assert found("module.py", text) == [(5, f"a docstring begins with {words}")]


@pytest.mark.parametrize("opening", ["Often", "Item of a list", "The samples", "Android", "Software", "Ordered"])
def test_an_opening_is_a_whole_word(found, opening):
    assert found("module.py", f'"""{opening} fit."""') == []


def test_only_a_docstring_has_to_begin_with_a_subject(found):
    assert found("module.py", '# Of these, one.\nX = "Of these, one is enough"') == []


def test_messages_and_help_texts_are_read(found):
    text = """
    import click


    @click.option("--all", help="Tell what nobody asked for.")
    def show(path):
        if not path:
            raise ValueError(f"{path}: the header does not tell {path!r}, "
                             f"expected one that knows its rows")
    """
    assert found("module.py", text) == [(4, "nobody"), (7, "does not tell"), (7, "knows")]


def test_names_are_no_prose(found):
    assert found("module.py", 'TOLD = {"told": 1, "behind": "not told"}') == []


def test_a_comment_is_read_over_its_lines_and_one_after_code_alone(found):
    text = """
    # The device does
    # not tell its clock.
    one = 1  # the samples that rows
    two = 2  # say otherwise
    """
    assert found("module.py", text) == [(1, "does not tell")]


def test_cpp_and_toml_are_read_in_their_comments(found):
    assert found("kernel.cuh", "int a = 1;\n  int behind = 2;  // past, not behind, the row") == [(2, "behind")]
    assert found("suite.toml", '# Layers that nobody has.\ntitle = "nobody has it"') == [(1, "nobody")]


def test_code_blocks_of_a_page_are_left_out_and_lines_counted(found):
    text = """
    # A page

    ```python
    behind = told
    ```

    - It is told
      to rows.

    | a cell | behind |
    """
    assert found("page.md", text) == [(7, "told"), (10, "behind")]


def test_what_stands_in_two_cells_is_not_one_phrase(found):
    assert found("page.md", "| so | many |\n| does not | tell |\n\n- rows\n- say it") == []


def test_findings_are_printed_with_their_place_and_end_in_exit_status_1(tool, tmp_path, capsys):
    (tmp_path / "page.md").write_text("One.\nTwo is behind it.\n")
    assert tool.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{tmp_path}/page.md:2: behind: after, below or past\n"
    assert tool.main(["--count", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("    1 ")


def test_a_plain_folder_ends_in_exit_status_0(tool, tmp_path, capsys):
    (tmp_path / "page.md").write_text("The library reports its version.\n")
    (tmp_path / "data.csv").write_text("behind\n")
    assert tool.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_what_lint_reads_exists(tool):
    assert [name for name in tool.CLEAN if not (tool.ROOT / name).exists()] == []


def test_files_that_hold_the_words_on_purpose_exist_and_are_not_read(tool):
    assert [path for path in tool.EXEMPT if not path.is_file()] == []
    assert list(tool.files(tool.EXEMPT)) == []
