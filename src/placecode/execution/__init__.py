"""Run an experiment on this machine: choose the device, split members into stacks that fit into memory, start worker
processes, save checkpoints and report progress."""
