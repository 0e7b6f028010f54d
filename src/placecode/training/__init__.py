"""Train a stack of models: steps, optimizers, evaluation, early stopping and checkpoints."""
