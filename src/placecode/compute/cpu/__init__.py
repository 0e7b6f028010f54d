"""Compute losses and gradients on a CPU: explicit forward and backward passes (`step`), matrix products (`products`),
and everything between the matrix products (`kernels`)."""
