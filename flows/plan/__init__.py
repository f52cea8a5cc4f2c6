"""What a run will cost before it begins: a plan of its operations, tokens, FLOPs, memory, time and money."""
