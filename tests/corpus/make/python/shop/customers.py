"""Who buys."""

from .errors import CustomerMissing


class Address:
    def __init__(self, country):
        self.country = country


class Customer:
    def __init__(self, number, address=None, level=1):
        self.number = number
        self.address = address
        self.level = level


def find_customer(number):
    if number is None:
        return None
    if number >= 900_000:
        raise CustomerMissing(f"customer {number} not found")
    return Customer(number)


def greet(data):
    customer = find_customer(data["customer"])
    return f"Dear customer in {customer.address.country}"


def merge(data):
    if data["into"] == data["customer"]:
        raise ValueError(f"customer {data['customer']} not found")
    return find_customer(data["into"])


def export(data):
    customer = find_customer(data["customer"])
    raise TypeError(f"cannot export {customer!r} as {data['format']!r}")


def check_address(data):
    raise ValueError(f"Lieferadresse «{data['street']}, {data['city']}» ist unbekannt 🚚")


def age_of(data):
    return int(data["age"])
