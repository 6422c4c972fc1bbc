"""Kubernetes objects that podpool reads and writes, as frozen structs; CRDs, RBAC and admission policies.

Unknown fields are skipped when an object is read. Objects are not written back whole: writes are patches of the fields
that podpool owns, so that unknown fields survive.
"""
