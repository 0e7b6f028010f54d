"""Specifications of models (`member`), and the transformer that computes many models at once (`encoder`, `blocks`)."""
