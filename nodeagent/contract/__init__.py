# SPDX-License-Identifier: Apache-2.0
"""The JSON of the commands, declared: a class for each object, with a description for each key.

No command imports these declarations. The schemas of the package, the reference and the tests are made of them, see
``nodeagent.cli._schemas``. A feature has its own in ``schema.py`` of its folder: its keys of the status (``STATUS``)
and of a plan (``PLAN``), and the answers of its commands (``ANSWERS``, by their schema).
"""
