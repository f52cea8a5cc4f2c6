"""How many operations and tokens a run will ask for, counted before it begins: at least, typically, at most."""
