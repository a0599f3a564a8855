"""Text: normalisation, tokenizers and splitting."""
