"""The settings of the agent: schema, loading and repair."""
