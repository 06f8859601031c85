"""Keep latency-critical work safe on shared GPUs: the states of a GPU and the control of launch rates."""
