"""One model: its specification (`member`), and the transformer that computes many of them at once (`encoder`)."""
