"""Train a small DSpark draft model for a Llama-architecture target on a CPU: ``python -m hybrid_spark.drafter``.

In order: ``generate`` (answers and hidden states of the target, for the splits train, calibration and evaluation),
``train``, ``calibrate``, ``evaluate``, ``export``. Every step reads and writes one work folder and can be run again.
"""
