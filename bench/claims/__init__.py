"""The founding claims and their verdicts, from the rows of a store; views.py writes them to files."""
