"""Sphinx settings."""

from adjudge import __version__

project = "adjudge"
author = copyright = "The adjudge authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build", "README.md"]  # index.md includes it
autodoc_typehints = "none"
myst_heading_anchors = 3
