"""From a table to a map of its channels: train, choose sigma, compare with chance and with other methods."""
