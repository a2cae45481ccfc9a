"""What goes wrong in the shop: each case is one cause, so one group, and each call makes another instance of it.

A case is named for its cause, and was named before any fingerprint looked at what comes of it. The numbers,
names, addresses and times in an instance are what must not matter.
"""

import random
import string
import uuid
from dataclasses import dataclass
from typing import Any, Callable

chance = random.Random()


def number(least=1_000, most=899_999):
    return chance.randint(least, most)


def email():
    return f"{chance.choice(['ada', 'bob', 'chen', 'dora', 'émile'])}.{number(1, 99)}@{word()}.example"


def word(length=7):
    return "".join(chance.choices(string.ascii_lowercase, k=length))


def closed_port():
    return chance.randint(2_000, 9_000)  # nobody listens there: asked for, refused


def line(**changed):
    whole = {"sku": f"A-{number()}", "quantity": number(1, 9), "currency": "EUR", "price": f"{number(1, 99)}.50"}
    return {key: value for key, value in {**whole, **changed}.items() if value is not None}


def truncated(length):
    text = '{"channel": "web", "campaign": {"name": "autumn", "code": %d}, "tags": [1, 2, 3]}' % number()
    return text[:length]


def charge_id():
    return f"ch_{uuid.uuid4().hex[:14]}"


def cycle():
    a, b = word(), word()
    return {"category": a, "parents": {a: b, b: a}}


@dataclass
class Case:
    name: str
    type: str
    make: Callable[[], dict[str, Any]]
    why: str
    arguable: str = ""
    """What somebody else might say with some right."""


def wrong_order(**changed):
    return {"order": {"number": number(), "total": f"{number(1, 99)}.90", "email": email(), **changed}}


CASES = {
    case.name: case
    for case in [
        Case(
            "sku-missing-when-pricing", "order.placed", lambda: {"lines": [line(), line(sku=None)]},
            "an order line without sku: KeyError 'sku' in orders.price_line",
        ),
        Case(
            "sku-missing-when-reserving", "stock.reserved", lambda: {"lines": [line(sku=None)]},
            "the same KeyError 'sku', but stock.reserve reads it: another place to mend",
        ),
        Case(
            "currency-missing-when-pricing", "order.placed", lambda: {"lines": [line(currency=None)]},
            "another field missing in the same function as sku-missing-when-pricing",
        ),
        Case(
            "currency-unknown", "order.placed",
            lambda: {"lines": [line(currency=chance.choice(["XAU", "CHF", "BTC", "JPY"]))]},
            "the table of rates lacks a currency: whichever it is, the table is to be mended",
        ),
        Case(
            "limit-exceeded", "order.placed",
            lambda: {
                "lines": [line(price=f"{number(10_001, 99_999)}.10")], "number": number(),
                "email": email(), "limit": chance.choice([10000, 10000.0, "10 000"]),
            },
            "over the limit; order, amount, limit and address differ",
        ),
        Case(
            "order-total-invalid", "order.checked",
            lambda: wrong_order(total=chance.choice(["abc", "12,50", "n/a", word()])),
            "pydantic: total is no decimal, whatever it is instead",
        ),
        Case(
            "order-email-missing", "order.checked",
            lambda: {"order": {"number": number(), "total": "1.00", "phone": str(number())}},
            "pydantic: another field of the same model, missing",
        ),
        Case(
            "metadata-truncated", "order.metadata", lambda: {"metadata": truncated(chance.choice([50, 75, 78, 58]))},
            "JSON cut off somewhere: position, and with it the parser's wording, differ; the sender cuts it",
            "the parser's wording differs with the place of the cut",
        ),
        Case(
            "metadata-empty", "order.metadata", lambda: {"metadata": chance.choice(["", "  ", "\n"])},
            "no JSON at all: 'Expecting value' at char 0, 1, 2; the sender leaves it out",
        ),
        Case(
            "order-saved-twice", "order.saved", lambda: {"number": 1001, "customer": 1, "at": number()},
            "sqlite3.IntegrityError: UNIQUE of orders.id",
        ),
        Case(
            "order-saved-without-customer", "order.saved", lambda: {"number": number(2_000), "customer": None},
            "sqlite3.IntegrityError from the same line: NOT NULL of orders.customer",
        ),
        Case(
            "order-saved-for-nobody", "order.saved", lambda: {"number": number(2_000), "customer": number()},
            "sqlite3.IntegrityError from the same line: FOREIGN KEY",
        ),
        Case(
            "cancel-without-address", "order.cancelled", lambda: {"customer": number()},
            "'NoneType' object has no attribute 'country' in orders.cancel",
        ),
        Case(
            "greet-without-address", "customer.greeted", lambda: {"customer": number()},
            "the same AttributeError in customers.greet: apart",
        ),
        Case(
            "customer-missing", "order.cancelled", lambda: {"customer": number(900_000, 999_999)},
            "CustomerMissing: customer N not found",
        ),
        Case(
            "merged-into-itself", "customer.merged",
            lambda: (lambda n: {"customer": n, "into": n})(number()),
            "the same message as customer-missing from another type and place",
        ),
        Case(
            "merged-into-missing", "customer.merged",
            lambda: {"customer": number(), "into": number(900_000, 999_999)},
            "CustomerMissing from the same find_customer, called by another function of the application",
            "one could say with customer-missing: the same raise in the same helper",
        ),
        Case(
            "export-refused", "customer.exported",
            lambda: {"customer": number(), "format": chance.choice(["xml", "csv", "yaml"])},
            "a message with the address of an object and a quoted value",
        ),
        Case(
            "address-unknown", "customer.moved",
            lambda: {
                "street": chance.choice(["Straße", "Rue de l'Été", "ул. Ленина"]) + f" {number(1, 300)}",
                "city": chance.choice(["Köln", "東京", "Київ"]),
            },
            "a message beyond ASCII with names of any script",
        ),
        Case(
            "age-no-number", "customer.aged", lambda: {"age": chance.choice(["42 years", "unknown", "?"])},
            "invalid literal for int() in customers.age_of",
        ),
        Case(
            "voucher-no-number", "order.vouchers", lambda: {"vouchers": ["7", chance.choice(["V-12", "1.5", "x"])]},
            "invalid literal for int() in orders.count_vouchers: apart from age-no-number",
        ),
        Case(
            "discount-of-nothing", "order.discounted", lambda: {"customer": number(), "saved": number(), "total": 0},
            "division by zero",
        ),
        Case(
            "category-in-a-circle", "order.category", cycle,
            "two categories are each other's parent: RecursionError, a thousand frames",
        ),
        Case(
            "gateway-503-charging", "payment.charged", lambda: {"way": "503", "charge": charge_id()},
            "the gateway answers 503 to charges; url and port differ",
        ),
        Case(
            "gateway-404-charging", "payment.charged", lambda: {"way": "404", "charge": charge_id()},
            "the same line, but 404: the charge is not known, another cause than an outage",
        ),
        Case(
            "gateway-503-refunding", "payment.refunded", lambda: {"way": "503", "charge": charge_id()},
            "the same 503 out of the same library, called by another function of the application",
        ),
        Case(
            "gateway-slow-charging", "payment.charged", lambda: {"way": "slow", "charge": charge_id()},
            "httpx.ReadTimeout of charges",
        ),
        Case(
            "balance-refused", "payment.balanced", lambda: {"port": closed_port()},
            "connection refused; the port differs",
        ),
        Case(
            "settle-refused", "payment.settled", lambda: {"port": closed_port(), "charge": charge_id()},
            "PaymentFailed from a refused connection",
        ),
        Case(
            "settle-without-token", "payment.settled",
            lambda: {"charge": charge_id(), "customer": email(), "tokens": {}},
            "the same PaymentFailed with the same message, from a token that is missing: another cause",
        ),
        Case(
            "fallback-missing", "payment.told", lambda: {"port": closed_port()},
            "KeyError 'fallback' during handling of a refused connection: the KeyError is what to mend",
        ),
        Case(
            "reservation-without-sku", "stock.written",
            lambda: {"row": {"id": number(), "sku": None, "shelf": f"S-{number()}"}},
            "sqlalchemy.IntegrityError over several lines, with SQL and parameters: NOT NULL of sku",
        ),
        Case(
            "reservation-shelf-taken", "stock.written",
            lambda: {"row": {"id": number(), "sku": f"B-{number()}", "shelf": "S-7"}},
            "sqlalchemy.IntegrityError from the same line: UNIQUE of shelf",
        ),
        Case("out-of-stock", "stock.taken", lambda: {"left": -number(0, 9)}, "an error without message"),
        Case("weight-not-positive", "stock.weighed", lambda: {"weight": -number()}, "a bare assert in stock.weigh"),
        Case("length-not-positive", "stock.measured", lambda: {"length": 0}, "a bare assert in stock.measure: apart"),
        Case(
            "price-no-decimal", "stock.priced", lambda: {"price": chance.choice(["12,50", "EUR 3", "free"])},
            "decimal.InvalidOperation, whose message names classes",
        ),
        Case(
            "label-not-there", "stock.labelled",
            lambda: {"file": f"/srv/labels/2026/{number(1, 12):02}/{uuid.uuid4()}.pdf"},
            "FileNotFoundError with a path of its own each time",
        ),
        Case(
            "warehouse-503", "stock.notified", lambda: {"way": "503", "shelf": f"S-{number()}"},
            "urllib: HTTP Error 503",
        ),
        Case(
            "warehouse-404", "stock.notified", lambda: {"way": "404", "shelf": f"S-{number()}"},
            "urllib: HTTP Error 404 from the same line: apart",
        ),
        Case(
            "ping-refused", "stock.pinged", lambda: {"port": closed_port(), "at": number()},
            "requests: host, port, url and the address of an object in the message",
        ),
        Case(
            "manifest-not-utf8", "stock.manifest",
            lambda: {"manifest": (word(number(3, 40)).encode() + bytes([number(0xF8, 0xFF)])).hex()},
            "UnicodeDecodeError: byte and position differ",
        ),
        Case("no-first-shelf", "stock.first", lambda: {"shelves": []}, "IndexError in stock.first_shelf"),
        Case("no-last-shelf", "stock.last", lambda: {"shelves": []}, "the same IndexError in stock.last_shelf: apart"),
        Case(
            "template-without-name", "mail.rendered",
            lambda: {"template": "Dear {{ name }}, order {{ number }}", "values": {"number": number()}},
            "jinja2: 'name' is undefined",
        ),
        Case(
            "template-without-number", "mail.rendered",
            lambda: {"template": "Dear {{ name }}, order {{ number }}", "values": {"name": word()}},
            "jinja2: 'number' is undefined: another value is not handed over",
        ),
        Case(
            "attachment-refused", "mail.attached",
            lambda: {
                "report": "\n".join(f"  line {number(1, 99)}: {word()} {uuid.uuid4()}" for _ in range(number(2, 5)))
            },
            "a message of several lines, more or fewer of them",
        ),
        Case(
            "mail-not-archived", "mail.archived", lambda: {"text": " ".join(word() for _ in range(number(300, 500)))},
            "a very long message",
        ),
        Case(
            "receipt-late", "mail.receipt", lambda: {"seconds": chance.choice([0.05, 0.08])},
            "TimeoutError without message out of asyncio.timeout",
        ),
        Case(
            "bounce-late", "mail.bounce", lambda: {"seconds": chance.choice([0.05, 0.08])},
            "the same TimeoutError in another function: apart",
        ),
        Case(
            "some-mails-refused", "mail.sent",
            lambda: {"addresses": [email() for _ in range(number(1, 3))], "port": closed_port()},
            "ExceptionGroup of refused connections, one or more of them",
        ),
        Case(
            "some-addresses-wrong", "mail.sent",
            lambda: {"addresses": [email(), *(word() for _ in range(number(1, 2)))]},
            "ExceptionGroup from the same line of ValueErrors: another cause",
        ),
    ]
}
ASYNC = {"mail.receipt", "mail.bounce", "mail.sent"}
