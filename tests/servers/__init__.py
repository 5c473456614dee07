"""Private servers for tests, benchmarks and chaos runs: started and stopped here, never shared."""
