"""Training with several workers."""
