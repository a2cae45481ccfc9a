"""Send the messages, then be Dramatiq's worker."""

import os
import sys

from actors import broker, handle, handle_fast, resize, subtitle, thumbnail, transcode
from telling import RELEASE, instances, sent

NAMES = """sku-missing-when-pricing sku-missing-when-reserving currency-missing-when-pricing metadata-truncated
order-saved-twice order-saved-without-customer order-saved-for-nobody manifest-not-utf8 address-unknown
gateway-503-charging gateway-slow-charging settle-refused settle-without-token fallback-missing
category-in-a-circle attachment-refused mail-not-archived some-addresses-wrong no-first-shelf no-last-shelf
customer-missing merged-into-itself merged-into-missing""".split()


def put(actor, expect, why, *args, arguable=""):
    message = actor.message(*args)
    sent(message.message_id, expect, why, arguable)
    broker.enqueue(message)


for _, case, data in instances(NAMES, "media", telling=False):
    put(handle, f"media/{case.name}", case.why, case.type, data, arguable=case.arguable)
for _, case, data in instances(["order-saved-twice", "no-first-shelf"], "media.fast", telling=False):
    put(handle_fast, f"media.fast/{case.name}", case.why, case.type, data, arguable=case.arguable)
for number in range(3 - RELEASE):
    put(thumbnail, "media/thumbnail-failed", "no retries of Dramatiq's own: no traceback, only the actor", {"width": 0})
    put(subtitle, "media/subtitle-failed", "an error the actor `throws`: no traceback, another actor", {"n": number})
    put(resize, "media/resize-called-wrongly", "TypeError of the call itself: no frame of the application", 3 + number)
    put(transcode, "media/transcode-too-long", "Dramatiq's TimeLimitExceeded, at whatever line it strikes", 60)
os.execv(sys.executable, [sys.executable, "-m", "dramatiq", "actors", "-p", "1", "-t", "4"])
