"""The handlers of the commands, one module per noun. Imported only when their command runs."""
