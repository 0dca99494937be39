"""Sphinx: Markdown pages by MyST, the reference by autodoc. Built by `make docs`, where a warning is an error."""

from radial.version import __version__

project = "radial"
author = "the radial authors"
copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "alabaster"
html_theme_options = {
    "description": "Train, attack and certify deep-RL agents that withstand perturbed observations",
    "fixed_sidebar": True,
    "page_width": "1080px",
}
html_sidebars = {"**": ["about.html", "navigation.html", "searchfield.html"]}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90


def as_written(app, what, name, obj, options, lines):
    """Our docstrings are plain text in aligned columns: show them as they stand instead of reading them as markup."""
    if any(line.strip() for line in lines):
        lines[:] = ["::", "", *(f"    {line}" for line in lines), ""]


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", as_written)
