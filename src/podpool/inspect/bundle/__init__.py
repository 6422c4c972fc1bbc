"""Support bundle: an archive of a cluster's state and logs for those who help, without secrets."""
