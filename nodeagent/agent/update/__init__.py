"""The phases of an update and the executor that runs them."""
