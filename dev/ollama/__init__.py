"""A real Ollama server for the tests: built once, kept outside the checkout."""
