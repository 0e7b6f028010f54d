"""Tasks: data, loss, metrics, and the true positions of the tokens if they are known."""
