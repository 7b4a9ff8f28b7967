"""The rule on lengths finds what is too long, and nothing else."""


def test_long_module_and_long_function_are_named_with_their_lengths(script):
    sizes = script("sizes")
    function = "def slow():\n" + "    pass\n" * sizes.FUNCTION
    text = function + "\n" * (sizes.MODULE - sizes.FUNCTION)
    assert list(sizes.complaints("a.py", text)) == [
        "a.py: 251 lines, expected at most 250: split it along an idea",
        "a.py:1: slow has 46 lines, expected at most 45",
    ]


def test_what_is_just_short_enough_passes(script):
    sizes = script("sizes")
    text = "def quick():\n" + "    pass\n" * (sizes.FUNCTION - 1) + "\n" * (sizes.MODULE - sizes.FUNCTION)
    assert list(sizes.complaints("a.py", text)) == []
    assert list(sizes.complaints("a.cu", "x\n" * sizes.MODULE)) == []
