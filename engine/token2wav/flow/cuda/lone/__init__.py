"""Attention of a single row by a kernel in CUDA C++, where the device has one: docs/adr/0080."""
