"""The kernels that are measured: one folder an operation, each with its problem class and its kernels."""
