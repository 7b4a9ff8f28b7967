"""What is kept: rows and the store."""
