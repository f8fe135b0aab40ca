"""Values and sentences for the answers of a cluster. No module here has a connection or a thread."""
