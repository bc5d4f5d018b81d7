"""``python -m pairtrial``."""

from __future__ import annotations

from pairtrial.cli.main import main

if __name__ == "__main__":
    main()
