"""Sets in, sets out: what a network can answer when its input moves inside a ball.

`graph` reads the network, `layers` says which rule belongs to which layer, `affine` and `nonlinear` hold the rules,
`backward` substitutes them, `rounding` pays for floating point, and `methods` is the front door.
"""
