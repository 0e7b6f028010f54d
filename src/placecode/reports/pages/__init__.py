"""What the report of each experiment shows: its figures, sentences, tables, sigma slider and map of channels."""
