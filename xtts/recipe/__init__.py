"""Recipes: TOML files with all settings of a run."""
