"""The pages. A view reads access, form, one service call, render; nothing here reaches the cluster."""
