"""Faster ways to compute what `models.encoder` computes: Triton kernels on a GPU, compiled C++ on a CPU."""
