"""PNG files, as few of their features as a frame needs: eight bits, grey or colour."""

import struct
import zlib

import torch
from torch import Tensor


def encode(frame: Tensor) -> bytes:
    """A frame (1, H, W) or (3, H, W) uint8 as a PNG."""
    channels, height, width = frame.shape
    rows = frame.permute(1, 2, 0).reshape(height, width * channels)
    filtered = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), rows], dim=1)  # filter 0 in front of every row
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = zlib.compress(filtered.numpy().tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
