"""What a loop is made of: drawing and scoring, batches, optimizer steps, and what one kind of algorithm needs."""
