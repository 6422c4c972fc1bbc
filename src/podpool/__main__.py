"""The command `podpool`."""

from podpool.cli import app


def main() -> None:
    """Run what was typed."""
    app()


if __name__ == "__main__":
    main()
