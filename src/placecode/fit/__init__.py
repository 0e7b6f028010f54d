"""Learn a map of the channels of a table: train models, choose sigma, compare with chance and with other methods."""
