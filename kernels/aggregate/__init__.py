"""Aggregation: adding the gradients of w workers, which determines how data parallelism scales."""
