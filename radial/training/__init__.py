"""One file, one training loop, read downwards; and `Run`, the folder a training lives in."""
