"""One file per command of the command line; each parses, calls and prints, and computes nothing itself."""
