"""`BadInput`, the one error of a caller's mistake. Apart from `core.data` so that a refusal need not wait for torch."""


class BadInput(ValueError):
    """The caller's argument is wrong; the message is one line that names it and the allowed values."""
