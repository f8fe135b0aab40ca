"""Inputs of any bytes for what reads bytes: a broker's requests, batches, settings and control calls.

A target reads an input, and raises `Finding` if it costs more than it may, or ends in another way than its own errors.
`make fuzz` runs targets under atheris, which mutates inputs by the coverage that they reach; the fast tests try a few
hundred mutations of each, and what `corpus/` keeps.
"""
