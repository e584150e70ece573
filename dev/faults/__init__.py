"""`make faults`: orders, changes, stops and releases while everything fails, and what was lost (issue 6, "Survive")."""
