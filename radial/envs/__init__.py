"""Environments behind one vector interface: what steps, resets itself and is checked at every step.

`make` is the front door, `gymnasium_vec` and `envpool_vec` are the backends, `checks` guards what goes in and out,
`watchdog` ends a simulator that hangs, and `counting` is an env whose every reward is known.
Knows no agent and no loss.
"""
