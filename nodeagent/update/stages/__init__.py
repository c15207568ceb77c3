"""The stages of an update, and what they need."""
