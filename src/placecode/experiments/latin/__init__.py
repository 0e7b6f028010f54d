"""Experiments on Latin squares (a grid puzzle like a small sudoku), and their claims."""
