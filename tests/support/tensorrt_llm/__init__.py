"""NVIDIA's package as far as it is used, made from its published signatures; nobody has it here."""
