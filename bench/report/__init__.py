"""Show results: tables and exports, read from the store."""
