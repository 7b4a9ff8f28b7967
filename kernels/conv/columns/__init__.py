"""Convolution as products with matrices of columns (im2col)."""
