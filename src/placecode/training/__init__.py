"""Training of a stack of models: optimizers, training steps, evaluation, early stopping and checkpoint states."""
