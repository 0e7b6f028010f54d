"""What models learn: data, loss, what counts as correct, and the true positions where they are known."""
