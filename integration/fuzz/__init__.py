# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of everything that reads input from outside, with atheris: `make fuzz`.

A target is a function of bytes that raises only the errors that its readers document. The bytes of a target with a
document are either the document, or choices of values for a sample of it (``odd``). Ring 1 runs the seeds of each
target, so a target works without atheris.
"""
