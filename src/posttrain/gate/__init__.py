"""How good is this policy? Fixed suites, scores with intervals, paired comparisons."""
