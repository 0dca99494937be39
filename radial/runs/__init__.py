"""Folders that survive: a run, its checkpoints and metrics, configs as JSON. What is trained is not known here."""
