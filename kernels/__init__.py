"""The kernels that are measured: a folder for each operation, with its problem class and its kernels."""
