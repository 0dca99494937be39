"""Whole tasks built from the other packages: train, robustify, reproduce, audit."""
