"""Tuning: a kernel's resources, profiles, searches of tiles, selectors, and comparisons of saved versions."""
