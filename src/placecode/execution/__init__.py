"""Run an experiment on this machine: choose the device, split its models into stacks (models trained together) that fit
into memory, start worker processes, save checkpoints and report progress."""
