"""The demo corpus, spoken by espeak-ng."""
