"""Experiments on Latin squares, with their claims."""
