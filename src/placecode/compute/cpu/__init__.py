"""The training step on a CPU: forward and backward written out (`step`), and what is between products (`kernels`)."""
