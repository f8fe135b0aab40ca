"""The web page of minibroker: `minibroker console`, a process beside the broker. Imported only by that command."""
