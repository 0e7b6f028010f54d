"""Choose what the report of each study shows: its figures, sentences, sigma slider (the "dial") and map of channels."""
