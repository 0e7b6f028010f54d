"""Reading of files: tables, recordings, atlases and puzzles. Independent of models."""
