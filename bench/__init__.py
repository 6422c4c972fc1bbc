"""The bench harness: measures podpool beside others, and writes down what came out, missed goals too."""
