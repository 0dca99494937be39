"""Adversaries that are trained: PPO against a fixed agent, in a world whose actions are perturbations.

forms (an adversary's action → an observation), world (the env as the adversary sees it), adversaries (`SARL`, `PAAD`),
screening (constant ones first), halving (the search over settings and seeds), stored (folders of fitted attacks),
strong (PGD with the loss that hurts most).
"""
