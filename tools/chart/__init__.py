"""What of the chart follows from other files: `make docs` writes it, and tests compare it.

values.schema.json and README.md follow from values.yaml, the files of templates from podpool's own output. The plain
manifests in deploy/manifests are the chart rendered by Helm: `make manifests`.
"""
