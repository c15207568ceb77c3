"""What is done to units and static pods, and whether they are well."""
