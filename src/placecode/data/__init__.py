"""Read files: tables, recordings, atlases and puzzles. Arrays and names out; knows no models."""
