"""Multiply-adds on registers: the ceiling of every operation with arithmetic."""
