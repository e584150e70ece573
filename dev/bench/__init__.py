"""`make bench`: what the portal takes, measured on this machine with real processes (issue 6, "Measure")."""
