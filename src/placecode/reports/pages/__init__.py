"""What the report of each experiment shows: its figures, sentences, dial and map."""
