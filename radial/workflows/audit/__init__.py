"""Is the policy I have robust? Attacks and certificates on one agent, brought together into one answer.

How an attack works is in `attacks`, how something is proven in `evaluation`, how the answer looks in `reports`.
"""
