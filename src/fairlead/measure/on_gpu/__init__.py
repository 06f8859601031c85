"""Measurements on the GPUs of this machine; what they write is what policies and simulator read.

Commands that are measured print a line for each step; lines that match a pattern are counted.
"""
