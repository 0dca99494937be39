"""Sphinx: Markdown pages by MyST, the reference by autodoc. Built by `make docs`, where a warning is an error."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from radial.version import __version__

project = "radial"
author = "the radial authors"
copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "alabaster"
html_math_renderer = "mathml"
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


def show_math(translator, node):
    """Formulas as MathML, which browsers draw themselves: the pages need no script and no network."""
    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app):
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (show_math, None), (show_math, None))
    app.connect("autodoc-process-docstring", as_written)
