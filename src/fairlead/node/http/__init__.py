"""The node agent as an HTTP server on a Unix socket."""
