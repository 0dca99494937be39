"""Agents: the papers' networks and imported ones, how they act, and how they are saved and loaded.

Nothing here knows how an agent is trained.
"""
