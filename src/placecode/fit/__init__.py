"""Learn a map of the channels (columns) of a user's table, as done by `placecode fit` and `LearnedPositions`."""
