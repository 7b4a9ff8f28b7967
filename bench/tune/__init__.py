"""Tuning sessions: the resources of a kernel, and each saved version compared with the one before."""
