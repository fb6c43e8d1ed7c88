"""How a sum of money is written, wherever one is."""

__all__ = ["cost_words", "usd"]

_LEAST = 0.000001


def usd(cost: float | None) -> str:
    """US dollars as a number; a dash where a price is not known, and more digits where a sum would look like nothing.

    >>> [usd(cost) for cost in (None, 0, 0.00000002, 0.00012345, 0.0021, 3.5, 1234.567)]
    ['-', '0', '0.000001', '0.000123', '0.0021', '3.5000', '1,234.57']
    """
    if cost is None:
        return "-"
    if not cost:
        return "0"
    if cost < 0.001:
        return f"{max(cost, _LEAST):.6f}"
    return f"{cost:.4f}" if cost < 10 else f"{cost:,.2f}"


def cost_words(cost: float | None) -> str:
    """A sum of money in a sentence.

    >>> cost_words(0.0021), cost_words(0), cost_words(None)
    ('0.0021 USD', '0 USD', 'cost not known')
    """
    return "cost not known" if cost is None else f"{usd(cost)} USD"
