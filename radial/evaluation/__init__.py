"""What an agent is worth: episodes under attack, and the numbers that sum them up.

`episodes` has the one loop, `play`, and `evaluate`; `statistics` the means and intervals. What can be proven of them
is in `certificates` (GWC, ACR) and `worst_case` (AWC), on top of `possible`; `audit` raises the alarm if a proof is
refuted. How an attack works is not known here.
"""
