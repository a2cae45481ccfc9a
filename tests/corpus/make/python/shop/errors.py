"""Errors of the shop's own."""


class ShopError(Exception):
    """All of them."""


class PaymentFailed(ShopError):
    """The customer was not charged."""


class LimitExceeded(ShopError):
    """Too much at once."""


class CustomerMissing(ShopError):
    """Nobody of that number."""


class OutOfStock(ShopError):
    """There is nothing left."""
