"""How gunicorn serves the portal: its own words in the portal's log format. Paths and numbers are in the Dockerfile."""

import os

from portal.logs import configuration

# Longer than a page waits between two polls, so that each does not open a connection of its own.
keepalive = 10

_settings = configuration(os.environ.get("LOG_FORMAT", "json"), os.environ.get("LOG_LEVEL", "INFO"))
logconfig_dict = {
    **_settings,
    "loggers": {
        "gunicorn.error": {"level": "INFO", "propagate": True},
        "gunicorn.access": {"level": "CRITICAL", "propagate": False},
    },
}
