"""Measurements: every ratio is taken side by side in one run, engines taking turns round by round."""
