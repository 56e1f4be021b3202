"""One real day of flights through a mesh, with a broker killed on the way: `scripts/quickstart`."""
