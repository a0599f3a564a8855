"""Speech synthesis with a trained or an imported model."""
