"""What jobs are like, learnt from what is seen of them. One learner serves the simulator and the live controller."""
