"""Histories: what clients asked for, were told and received, and the verdicts over it.

`operations` is the format, and `recorder` writes it. `recorded` wraps the SDK's clients so that they write it.
`reading` turns files into columns. `checker` and `judging` find what must not have happened, and `report` shows it.
"""
