"""A real Chromium against the whole portal: web, worker, watcher and sandbox as processes."""
