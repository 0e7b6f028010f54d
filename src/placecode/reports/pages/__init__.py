"""Choose what the report of each experiment shows: its figures, sentences, sigma slider (the "dial") and map of
channels."""
