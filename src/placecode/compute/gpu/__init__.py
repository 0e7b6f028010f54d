"""The forward and backward pass of a stack on a GPU, by Triton kernels: `forward`, `functions` and `kernels/`.

This package and `kernels` can be imported without Triton; their modules cannot.
"""
