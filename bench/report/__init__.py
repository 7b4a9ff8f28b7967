"""What is shown: tables and exports, read from the store."""
