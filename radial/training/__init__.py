"""The training loops, one file each, read downwards, and the parts they share."""
