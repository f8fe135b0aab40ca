"""Programs that reach all grades of the labs (test_labs.py); each runs as a student would run it."""
