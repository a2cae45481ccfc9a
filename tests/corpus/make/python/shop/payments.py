"""The payment gateway."""

import os

import httpx

from .errors import PaymentFailed

GATEWAY = os.environ.get("GATEWAY", "http://127.0.0.1:9")


def charge(data):
    answer = httpx.post(f"{GATEWAY}/{data['way']}/charges/{data['charge']}", timeout=0.3)
    answer.raise_for_status()
    return answer.json()


def refund(data):
    answer = httpx.post(f"{GATEWAY}/{data['way']}/refunds/{data['charge']}", timeout=0.3)
    answer.raise_for_status()
    return answer.json()


def balance(data):
    answer = httpx.get(f"http://127.0.0.1:{data['port']}/balance", timeout=1)
    return answer.json()["balance"]


def token_of(data):
    return data["tokens"][data["customer"]]


def settle(data):
    try:
        if data.get("port"):
            return balance(data)
        return token_of(data)
    except (httpx.HTTPError, LookupError) as error:
        raise PaymentFailed(f"could not settle payment {data['charge']}") from error


def settle_or_tell(data):
    try:
        return balance(data)
    except httpx.HTTPError:
        return data["fallback"]["account"]
