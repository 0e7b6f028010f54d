"""Readers of data files: tables (CSV, Parquet, NumPy, MATLAB, HDF5), brain recordings, brain atlases and puzzles.

Nothing here imports models or tasks. Input that cannot be used raises `BadInput`, with the file and the reason.
"""
