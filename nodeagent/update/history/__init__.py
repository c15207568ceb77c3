"""The history of updates: outcome, trail and entry."""
