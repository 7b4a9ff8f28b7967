"""FFT: batches of discrete Fourier transforms in one or two dimensions."""
