"""Sets in, sets out: bounds on a network's outputs while its input moves inside a ball.

`tracing` writes down a network's forward, `graph` reads that, and `witness` compares it with the network; `layers` maps
each layer to its rule, `affine` and `nonlinear` hold the rules, `backward` substitutes them, `rounding` accounts for
floating point, and `methods` is the public interface.
"""
