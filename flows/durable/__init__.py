"""What survives a Retry: attempts, their cycles and outcomes, sessions that end with them."""
