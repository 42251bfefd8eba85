"""Tables, curves and reports of finished runs, read from their files; nothing here needs JAX."""
