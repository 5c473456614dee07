"""What makes a cluster of nodes: being known, leading, finding one another."""
