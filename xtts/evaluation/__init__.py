"""Evaluation: distortion, word error rate and speaker similarity of a run."""
