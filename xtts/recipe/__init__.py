"""Recipes: a TOML file becomes a checked `Recipe`."""
