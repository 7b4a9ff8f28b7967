"""Record rows in the store."""
