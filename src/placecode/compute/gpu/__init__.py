"""Compute the forward and backward pass of a stack on a GPU with Triton kernels.

`forward` computes the outputs of a stack. It uses autograd functions in `functions`, which call the kernels in
`kernels/`. The packages `gpu` and `gpu.kernels` can be imported without Triton, but their modules cannot.
"""
