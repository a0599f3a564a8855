"""Verbs about a corpus."""
