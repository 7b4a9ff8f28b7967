"""Import files of other programs, and our own CSV, as rows."""
