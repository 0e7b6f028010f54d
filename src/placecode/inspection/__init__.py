"""Scales of positional encodings in other models: what libraries start with, and which sigma our runs suggest."""
