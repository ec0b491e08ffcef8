"""Measure speed: every ratio comes from one run in which the engines take turns round by round."""
