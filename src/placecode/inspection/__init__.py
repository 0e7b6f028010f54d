"""Initialization scales of learned positional encodings: defaults of common libraries, and a recommended sigma."""
