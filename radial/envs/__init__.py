"""Environments behind one vector interface: they reset themselves and are checked at every step.

`make` is the front door, `gymnasium_vec` and `envpool_vec` are the backends, `contract` checks all inputs and outputs,
`watchdog` ends a simulator that hangs, and `counting` is an env whose every reward is known.
Knows no agent and no loss.
"""
