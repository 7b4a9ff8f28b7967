"""The rule on lengths finds what is too long, and nothing else."""

TOOL = "sizes"


def test_long_module_and_long_function_are_named_with_their_lengths(tool):
    function = "def slow():\n" + "    pass\n" * tool.FUNCTION
    text = function + "\n" * (tool.MODULE - tool.FUNCTION)
    assert list(tool.complaints("a.py", text)) == [
        "a.py: 501 lines, expected at most 500: split it along an idea",
        "a.py:1: slow has 46 lines, expected at most 45",
    ]


def test_what_is_just_short_enough_passes(tool):
    text = "def quick():\n" + "    pass\n" * (tool.FUNCTION - 1) + "\n" * (tool.MODULE - tool.FUNCTION)
    assert list(tool.complaints("a.py", text)) == []
    assert list(tool.complaints("a.cu", "x\n" * tool.MODULE)) == []
