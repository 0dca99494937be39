"""Geometry and data. Knows torch; knows no network, no environment and no paper."""
