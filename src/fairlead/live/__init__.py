"""The controller: the policy stack over real processes."""
