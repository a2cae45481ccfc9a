"""The warehouse."""

import os
import urllib.request
from decimal import Decimal

import requests
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert

from .errors import OutOfStock

WAREHOUSE = os.environ.get("GATEWAY", "http://127.0.0.1:9")

metadata = MetaData()
reservations = Table(
    "reservations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("sku", String, nullable=False),
    Column("shelf", String, unique=True),
)


def reserve(data):
    return {line["sku"]: line["quantity"] for line in data["lines"]}


def write_reservation(data):
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(reservations), {"id": 1, "sku": "A-1", "shelf": "S-7"})
        connection.execute(insert(reservations), data["row"])


def take(data):
    if data["left"] <= 0:
        raise OutOfStock


def weigh(data):
    assert data["weight"] > 0
    return data["weight"]


def measure(data):
    assert data["length"] > 0
    return data["length"]


def price(data):
    return Decimal(data["price"])


def label(data):
    return open(data["file"], "rb").read()


def notify(data):
    with urllib.request.urlopen(f"{WAREHOUSE}/{data['way']}/shelves/{data['shelf']}", timeout=0.5) as answer:
        return answer.read()


def ping(data):
    return requests.get(f"http://127.0.0.1:{data['port']}/ping?at={data['at']}", timeout=1)


def decode_manifest(data):
    return bytes.fromhex(data["manifest"]).decode()


def first_shelf(data):
    return data["shelves"][0]


def last_shelf(data):
    return sorted(data["shelves"])[-1]
