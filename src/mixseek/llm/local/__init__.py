"""Models that run in this process, by llama.cpp: the embedded one and any gguf file."""

from mixseek.llm.local.model import LocalModel, make_model
from mixseek.llm.local.weights import fetch

__all__ = ["LocalModel", "fetch", "make_model"]
