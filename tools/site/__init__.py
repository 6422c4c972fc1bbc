"""The documentation as a static site: the pages of docs/ as HTML that loads nothing from other hosts.

Sphinx checks every link and anchor and searches without a server. MyST lets the pages stay plain Markdown. furo has
light and dark mode and fits small screens. Two extensions convert what code hosts render themselves: `navigation` the
list in docs/index.md, `diagrams` the mermaid diagrams.
"""
