"""How long tests wait for what must come true."""

PATIENCE_S = 180.0
"""Only bounds a hang: no test proves anything by it, and on a busy machine everything takes its time."""
