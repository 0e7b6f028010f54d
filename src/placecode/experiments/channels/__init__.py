"""Experiments on masked prediction of channels (networks, synergy, fMRI, pixels, a user's table), and their claims."""
