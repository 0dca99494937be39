"""What an agent is worth: episodes under attack, and the numbers that sum them up.

`episodes` has the one loop, `play`, and `evaluate`; `statistics` the means and intervals. How an attack works is not
known here.
"""
