"""Processes of jobs: started, supervised, limited, and ended with all that they leave behind."""
