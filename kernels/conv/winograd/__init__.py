"""Winograd's minimal filtering of 3 x 3 filters."""
