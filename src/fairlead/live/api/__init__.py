"""The controller over HTTP: JSON, bearer tokens, base units. Needs the extra `live` (FastAPI, uvicorn, Prometheus)."""
