"""Aggregation: the gradients of w workers become one sum, which decides how data parallelism scales."""
