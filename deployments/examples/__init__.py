"""Small modules that the starter configurations name: a reward, a problem, a build_loss. Copy one and change it."""
