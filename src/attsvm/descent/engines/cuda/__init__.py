"""The CUDA engine: very many small runs at once on an NVIDIA GPU."""
