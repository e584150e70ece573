"""A real Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler. For tests."""
