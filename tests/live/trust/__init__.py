"""A cluster that is killed, stopped, filled, restored and attacked at random, and what its jobs say of it themselves.

Everything is done to real processes and from outside: through the command line, over HTTP, by signals and in the file
system. What is true is written down by the jobs, in folders that Fairlead does not know. The short form is a test; the
long one is `python bench/trust.py`.
"""
