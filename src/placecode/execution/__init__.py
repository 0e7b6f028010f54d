"""Run an experiment on this machine: device, memory, stacks of models, worker processes, checkpoints and progress."""
