"""Text: normalisation, tokens and sentences."""
