"""How well a model speaks."""
