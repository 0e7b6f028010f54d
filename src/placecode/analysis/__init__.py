"""Measures of what models have learned: pure functions of arrays, independent of models and runs."""
