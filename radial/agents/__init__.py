"""Who acts: the networks the papers use. Knows nothing of how they are trained."""
