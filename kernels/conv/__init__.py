"""Convolution: forward, and the gradients of the input and of the filter."""
