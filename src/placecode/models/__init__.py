"""Model specifications (`member`) and the transformer that evaluates many models at once (`encoder`)."""
