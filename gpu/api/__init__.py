"""The REST API under /api/v1/: declarations; the rules live below it."""
