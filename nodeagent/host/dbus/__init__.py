"""The system bus: client, exported object and authorization."""
