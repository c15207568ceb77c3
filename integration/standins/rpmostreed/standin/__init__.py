"""The program. Standard library and GObject introspection only: nothing of this repository outside this folder."""
