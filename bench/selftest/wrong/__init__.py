"""Wrong results, each named after what is wrong with it, and how often the checker sees it."""
