"""The training step on a CPU: explicit forward and backward passes (`step`), and fused kernels (`kernels`)."""
