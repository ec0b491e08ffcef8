"""What the numbers say: kinds of problem, and the statistics of tokens; numpy, no plotting."""
