"""Choose what the report of each experiment shows: its figures, sentences, sigma slider and map of
channels."""
