"""What runs inside the walls: it arrives as compiled code (`job.py`), and imports little and nothing of the host's."""
