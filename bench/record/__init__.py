"""Rows, the store that holds them, and the import of other programs' results."""
