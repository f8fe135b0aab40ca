"""`pytest --minibroker-chaos=20`: a suite's own tests again, each under twenty plans of faults that a seed draws."""
