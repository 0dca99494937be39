"""How good and how robust an agent is: episodes with and without an attack, certificates, and their statistics.

`play` has the one loop and `evaluate`; `statistics` the means and intervals; `prover` turns bounds into verdicts and
raises the alarm if one is refuted. On top of it: `certificates` (GWC, ACR), `reach` and `worst_case` (AWC); `q_bias`
compares Q-values with returns; `repeatable` checks that an agent is a function. How an attack works is not known here.
"""
