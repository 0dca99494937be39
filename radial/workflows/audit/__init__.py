"""Is this policy robust? Attacks and certificates on one agent, brought together into one answer.

How an attack works is in `attacks`, how something is certified in `evaluation`, how the answer looks in `reports`.
"""
