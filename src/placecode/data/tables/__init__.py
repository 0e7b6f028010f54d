"""Readers of tables (rows are samples, columns are channels) from files, NumPy arrays and pandas frames.

| module | content |
|---|---|
| `files` | start here: `read_sheet` (from a file) and `sheet_of` (from data in memory) return a table as a `Sheet` |
| `columns` | which columns are channels, categories or groups |
| `sources` | reading of rows in chunks, from Parquet, frames and arrays; parsing of cells |
| `texts` | reading of .csv and .tsv, and whether the first line is a header |
| `arrays` | reading of .npy, .npz, .mat and HDF5, shared with recordings |

`read_cells` and `encode_categories` in `files` prepare new samples for a model that is already trained.
"""
