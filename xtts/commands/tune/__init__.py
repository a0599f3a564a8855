"""`xtts tune`: find faster settings for a recipe by trying them."""
