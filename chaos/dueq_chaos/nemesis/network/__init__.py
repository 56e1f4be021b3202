"""Wires between the processes of a mesh that can be cut, slowed and reset, one direction at a time."""
