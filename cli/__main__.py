"""`python -m cli` is `whitney`."""

from cli.app import main

main()
