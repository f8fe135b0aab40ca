"""`make run`: a year of flights through a broker, a Spark job over them, and a picture of the result.

The demo is a client like any other: the broker and the Spark job are processes of their own, started with
the commands a user would type. Nothing here imports the broker or Spark's API.
"""
