"""Fast implementations of the transformer in `models.encoder`: Triton kernels on a GPU, compiled C++ on a CPU.

Their results equal those of `models.encoder` up to rounding.
"""
