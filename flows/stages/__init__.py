"""What `flows.pipeline` is made of: stages checked beforehand, their outcomes, gates, the page of a pipeline."""
