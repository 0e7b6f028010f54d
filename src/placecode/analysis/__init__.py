"""Measures of what models have learned: functions that take and return arrays, independent of models and runs."""
