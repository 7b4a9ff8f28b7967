"""Multiply-adds from registers alone: the ceiling of every operation that computes."""
