"""Updates: the record of an update, its phases and the decisions between them."""
