"""Configuration: typed dataclasses, composed from `conf/` by Hydra, validated once at the boundary."""
