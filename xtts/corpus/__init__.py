"""Corpora: reading, checking and measuring recordings and their texts."""
