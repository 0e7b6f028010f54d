"""Initialization scales (sigma) of learned positional encodings: defaults of libraries, and a recommended value."""
