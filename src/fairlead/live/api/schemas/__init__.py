"""What requests and answers look like, for the OpenAPI document. The tests hold real answers against it."""
