"""`python -m attsvm` is the command `attsvm`."""

from attsvm.cli import main

if __name__ == "__main__":
    main()
