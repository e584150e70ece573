"""The title of each operation of the API, by its operation id."""

from __future__ import annotations

SUMMARIES = {
    "root_retrieve": "Find your way",
    "packages_list": "List packages",
    "projects_list": "List projects",
    "projects_retrieve": "Get a project with its headroom",
    "slices_list": "List slices",
    "slices_create": "Order a slice",
    "slices_preview": "See what an order would meet",
    "slices_retrieve": "Get a slice",
    "slices_update": "Change a slice's workload",
    "slices_stop": "Stop a slice",
    "slices_start": "Start a slice",
    "slices_restart": "Restart a slice",
    "slices_release": "Give a slice back",
    "slices_manifest": "Get a slice's manifests",
    "slices_events": "List the cluster's events of a slice",
    "slices_timeline": "List what happened to a slice",
    "slices_log": "Read a slice's log",
    "slices_token": "Get the token of a notebook once",
    "models_list": "List a slice's models",
    "models_pull": "Fetch a model",
    "models_refresh": "Have a slice's models listed anew",
    "models_check": "Check a model",
    "models_delete": "Delete a model",
    "pulls_list": "List pulls",
    "pulls_retrieve": "Get a pull",
    "pulls_cancel": "Cancel a pull",
}
