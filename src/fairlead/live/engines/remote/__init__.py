"""Nodes on other machines: their agents dial the controller, over TLS (`docs/agents.md`)."""
