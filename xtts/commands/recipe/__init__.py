"""Verbs about a recipe without training it, and the flags that name one."""
