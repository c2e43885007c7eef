"""DPO."""

from .pairs import Preference


class Dpo(Preference):
    """Direct preference optimisation on pairs of a better and a worse attempt (Rafailov et al. 2023)."""

    name = "dpo"
    title = "DPO"
