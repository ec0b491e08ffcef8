"""Sweeps of trainings: a point is trained once with each seed, and is the mean over its seeds.

Trainings are kept beside the sweeps, in a folder that is a function of what was asked: sweeps share them, and a point
that was interrupted goes on from its checkpoint.
"""
