"""What the numbers say: paired contrasts, kinds of problem, and the statistics of tokens; numpy, no plotting."""
