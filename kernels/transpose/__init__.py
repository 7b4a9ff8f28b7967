"""Transposition of a row-major matrix, out of place and in place."""
