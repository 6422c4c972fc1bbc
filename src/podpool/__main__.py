"""`python -m podpool`."""

from podpool.cli.main import kubectl, kubectl_completion, main

__all__ = ["kubectl", "kubectl_completion", "main"]

if __name__ == "__main__":
    main()
