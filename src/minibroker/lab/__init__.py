"""Labs: a broker or a cluster that breaks, and grades for what a student's program made of it."""
