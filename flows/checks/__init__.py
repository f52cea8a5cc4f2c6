"""What is looked at before any session exists: data, prompts, rewards, capabilities."""
