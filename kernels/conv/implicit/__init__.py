"""Convolution as an implicit product of matrices: columns that are never stored."""
