"""What a developer or a newcomer runs: the demo, its services, the checks. Not part of the product."""
