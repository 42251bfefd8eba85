"""From one run to a grid of them: sweeps, statistics over seeds, tables, curves and reports."""
