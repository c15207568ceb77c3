"""The command line: one module for each command; helpers begin with an underscore."""
