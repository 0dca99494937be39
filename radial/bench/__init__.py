"""Measurements people repeat on their own machine. Ratios within one run; never asserted in a test."""
