"""Reading of tables from text, Parquet, NumPy, MATLAB and HDF5 files, arrays and pandas frames."""
