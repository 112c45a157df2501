"""Measurements, by committed scripts; results/ has their output."""

import voicegate.engine  # noqa: F401 - what it sets for OpenMP is read when torch is loaded, which any bench does
