"""The settings of a broker: `table.py` has a row for each, `types.py` what a row is made of.

Beside them: `unused.py` (accepted without an effect), `changeable.py` (changed while the broker runs), `endpoints.py`
(addresses in a value), `rules.py` (what must hold between several).
"""
