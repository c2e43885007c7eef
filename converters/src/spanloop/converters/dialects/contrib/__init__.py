"""Dialects of the long tail of vendors: one module each; nothing outside of it depends on them."""
