"""The native API: routes and models, one module a resource."""
