"""The documentation as a site: the pages of docs/ as they are, made into HTML that asks no other host for anything.

Sphinx, because it checks every link and anchor and searches without a server; MyST, because the pages stay plain
Markdown; furo, for light, dark and small screens. What is written for a code host (the list in docs/index.md, a mermaid
diagram) is read by two small extensions: `navigation` and `diagrams`.
"""
