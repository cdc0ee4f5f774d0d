"""Where untrusted code runs: `local.py` is the backend, `scripted.py` the fake, `probe.py` finds what there is."""
