"""Weft's version: here and nowhere else."""

# Semantic versioning; before 1.0 a new minor version may break programs.
WEFT_VERSION = "0.1.0"

# Changes whenever programs linked before must be built again.
WEFT_SO_VERSION = "0"
