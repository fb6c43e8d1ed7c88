"""``python -m mixseek``."""

from mixseek.cli import main

if __name__ == "__main__":
    main()
