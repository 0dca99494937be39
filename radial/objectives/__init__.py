"""Network + ball + pure loss = something to minimise. No environment, no optimiser."""
