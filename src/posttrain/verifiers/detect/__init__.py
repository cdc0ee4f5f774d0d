"""What a cheat looks like from outside the verifier: signs on a whole attempt, whatever its verdict says."""
