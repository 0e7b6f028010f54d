"""Experiments on masked prediction of channels (simulated networks, fMRI, pixels, a user's table), and their claims."""
