"""Convolution by the spectra of overlapping tiles (overlap-save)."""
