"""The control loop: what happened -> view -> plan -> on the disk -> engine."""
