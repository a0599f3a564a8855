"""Speech from a trained or an imported model."""
