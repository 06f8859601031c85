"""The controller: store, control loop, HTTP API and engines. It drives real jobs with the simulator's policies."""
