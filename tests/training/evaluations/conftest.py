"""The registered versions and the gateway of the promotion's tests."""

from ..promotion.conftest import gateway, model_folder, registry

__all__ = ["gateway", "model_folder", "registry"]
