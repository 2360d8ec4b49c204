"""Datasets, prompts, filters and edit-distance buckets."""
