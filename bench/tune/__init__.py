"""A tuning session: what a kernel takes of a multiprocessor, and each save of a source beside the one before."""
