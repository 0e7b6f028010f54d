"""Where a study runs."""
