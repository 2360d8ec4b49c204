"""The stages of one repeat: watch, warm up, measure, check."""
