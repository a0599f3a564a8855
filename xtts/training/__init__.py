"""Training: stages, steps, checkpoints and the run that holds them together."""
