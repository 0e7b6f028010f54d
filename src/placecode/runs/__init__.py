"""The run folder: written, read, summarized and merged, with the hash of the source that made it."""
