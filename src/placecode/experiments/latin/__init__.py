"""Experiments on Latin squares (grid puzzles like a small sudoku), and claims to check their runs against."""
