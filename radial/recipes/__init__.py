"""Rows of the papers' tables as data, and training by name; how anything is trained is in `algorithms`."""
