"""Texts that try to fool a judge, and a trial of one's own judge against them."""

from mixseek.attacks.texts import Attack, categories, load_attacks

__all__ = ["Attack", "categories", "load_attacks"]
