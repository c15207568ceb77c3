"""Read the facts that ``core.selfcheck`` judges. Nothing is changed on the host."""
