"""Configuration of Sphinx, which reads these names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

project = "podpool"
author = "the podpool authors"
extensions = ["myst_parser", "tools.site.navigation", "tools.site.diagrams"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4
myst_links_external_new_tab = False
nitpicky = True

html_theme = "furo"
html_title = "podpool"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_last_updated_fmt = None
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
