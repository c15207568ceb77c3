"""Checks of file contents before anything is written. Each module has ``check(content)``, which yields what is wrong
in words that hold no secret: the file's text may be one."""
