"""Read a user's own table from text, spreadsheets, NumPy, MATLAB and HDF5 files."""
