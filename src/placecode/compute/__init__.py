"""Fast implementations of `models.encoder`: Triton kernels on a GPU, compiled C++ on a CPU."""
