"""Run several engines on one machine or many, through Ray."""
