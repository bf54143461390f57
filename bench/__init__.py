"""Where the figures in the documentation come from. `make bench` runs all of them and prints JSON."""
