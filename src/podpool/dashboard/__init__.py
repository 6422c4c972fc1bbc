"""The dashboard: a live web page of one cluster's addresses. Read only."""
