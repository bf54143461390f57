"""Which knowledge goes first into a prompt."""

HALF_LIFE_DAYS = 90.0


def rank(age_days: float, *, helpful: int = 0, harmful: int = 0, pinned: bool = False) -> float:
    """Newer first, then how the sessions that had the row were received; pinned rows lead. How often a row was injected
    stays out of it: that figure would feed itself."""
    received = 0.5 * (helpful - harmful) / (helpful + harmful + 4)
    return float(2 ** (-max(age_days, 0.0) / HALF_LIFE_DAYS)) + received + (2.0 if pinned else 0.0)
