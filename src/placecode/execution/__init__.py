"""Where and how an experiment runs: memory, stacks, worker processes, progress."""
