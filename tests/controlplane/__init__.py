"""What must hold on a real control plane, and on the sandbox alike."""
