"""Fitted coefficients of Equation 1 as data files; read them with hybrid_spark.estimator.Coefficients.load."""
