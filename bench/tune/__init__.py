"""A tuning session: the resources that a kernel takes, and each save of a source beside the one before."""
