"""Histories: what clients asked for, were told and received, and the verdicts over it.

`operations` is the format, `recorder` writes it, `recorded` wraps the SDK's clients so that they write it, `reading`
turns files into columns, `checker` and `judging` say what must not have happened, `report` shows it.
"""
