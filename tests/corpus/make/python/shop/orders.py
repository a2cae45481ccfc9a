"""Placing, pricing and cancelling orders."""

import json
import sqlite3
from decimal import Decimal

from pydantic import BaseModel

from .customers import find_customer
from .errors import LimitExceeded

RATES = {"EUR": Decimal("1"), "USD": Decimal("0.92"), "GBP": Decimal("1.17")}


class Order(BaseModel):
    number: int
    total: Decimal
    email: str


def price_line(line):
    quantity = int(line["quantity"])
    article = line["sku"]
    currency = line["currency"]
    return article, quantity * Decimal(line["price"]) * rate_of(currency)


def rate_of(currency):
    return RATES[currency]


def place(data):
    lines = [price_line(line) for line in data["lines"]]
    total = sum(amount for _, amount in lines)
    if total > 10_000:
        raise LimitExceeded(
            f"order {data['number']}: {total} EUR exceeds the limit of {data['limit']} for {data['email']}"
        )
    return total


def check(data):
    return Order.model_validate(data["order"])


def read_metadata(data):
    return json.loads(data["metadata"])


def connect_store():
    store = sqlite3.connect(":memory:")
    store.execute("PRAGMA foreign_keys = ON")
    store.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
    store.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers (id))"
    )
    store.execute("INSERT INTO customers VALUES (1)")
    store.execute("INSERT INTO orders VALUES (1001, 1)")
    return store


def save(data):
    store = connect_store()
    with store:
        store.execute("INSERT INTO orders VALUES (?, ?)", (data["number"], data["customer"]))


def cancel(data):
    customer = find_customer(data["customer"])
    return customer.address.country


def discount(data):
    customer = find_customer(data["customer"])
    share = data["saved"] / data["total"]
    return customer.level * share


def count_vouchers(data):
    return [int(value) for value in data["vouchers"]]


def category_path(data, name=None):
    parents = data["parents"]
    name = name or data["category"]
    return [*category_path(data, parents[name]), name] if name in parents else [name]
