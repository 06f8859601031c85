"""The stream between an agent and a controller on another machine; `docs/agents.md` says what is guaranteed when."""
