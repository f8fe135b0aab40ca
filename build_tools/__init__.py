"""The build of the package beyond pyproject.toml: its page, its source distribution and its compiled form."""
