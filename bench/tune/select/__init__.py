"""Learn from measurements which kernel to call for a shape that was never measured, and estimate the lost speed."""
