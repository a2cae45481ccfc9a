"""The page where people sign in, and the one that a link from elsewhere meets first."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.responses import HTMLResponse

from deadletter.core.text.safe_text import markup

DOOR: Final = "/"
"""The one address that takes a token: the one that is printed at the start."""
_STYLE: Final = """
:root { color-scheme: light dark; --ink: light-dark(#1c1b19, #ececea); --soft: light-dark(#625e57, #a5a39d);
  --accent: light-dark(#1f4fc4, #94b3ff); --on-accent: light-dark(#ffffff, #0e1630);
  --edge: light-dark(#8b857b, #6f737b); --card: light-dark(#ffffff, #1b1d21);
  --bad: light-dark(#a8201a, #ff958c); --bad-soft: light-dark(#fce8e6, #3d1d1b) }
* { box-sizing: border-box }
body { margin: 0; padding: 12vh 1rem 2rem; background: light-dark(#f7f6f3, #131417); color: var(--ink);
  font: .9375rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif }
main { max-width: 24rem; margin: 0 auto; padding: 1.5rem; background: var(--card); border-radius: .5rem;
  box-shadow: 0 1px 2px light-dark(#0000000d, #00000066), 0 0 0 1px light-dark(#e2ded7, #303339) }
h1 { font-size: 1.5rem; line-height: 1.25; font-weight: 650; margin: 0 0 1rem } p { margin: 0 0 1rem }
label { display: block; font-weight: 600 }
input { width: 100%; font: inherit; color: inherit; background: transparent; padding: .5rem;
  margin: .25rem 0 1rem; border: 1px solid var(--edge); border-radius: .375rem }
button, .button { font: inherit; font-weight: 600; display: block; width: 100%; padding: .5rem 1rem;
  cursor: pointer; text-align: center; text-decoration: none; border: 1px solid var(--accent);
  border-radius: .375rem; background: var(--accent); color: var(--on-accent) }
.button { background: transparent; color: var(--accent) }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .875em }
.trouble { background: var(--bad-soft); color: var(--bad); padding: .5rem .75rem; border-radius: .375rem }
.quiet { color: var(--soft); font-size: .8125rem; margin: 1rem 0 0 }
""".strip()


def sign_in_page(
    *, nonce: str, goes_to: str, trouble: str = "", account: str = "", at_home: bool = False
) -> str:
    """`account`: what accounts are called, where there are some. `at_home`: how the owner comes in."""
    said = f'<p class="trouble" role="alert">{markup(trouble)}</p>' if trouble else ""
    way = markup(goes_to)
    accounts = (
        f'<p><a class="button" href="/sign-in/begin?next={quote(goes_to, safe="")}">'
        f"Sign in with {markup(account)}</a></p><p>Or with a token:</p>"
        if account
        else ""
    )
    hint = (
        '<p class="quiet">You started this service yourself? <code>dlq token address</code> prints an '
        "address that lets you in.</p>"
        if at_home
        else ""
    )
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign in – Deadletter</title>
<style nonce="{markup(nonce)}">{_STYLE}</style></head>
<body><main>
<h1>Deadletter</h1>
{said}{accounts}<form method="post" action="/sign-in">
<input type="hidden" name="next" value="{way}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button>
</form>
{hint}</main></body>
</html>
"""


def bounce_page(where: str) -> HTMLResponse:
    """Browsers keep our cookie to themselves when a link on another site leads here. This page asks again,
    and then it is ours that asks."""
    way = markup(where)
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Deadletter</title>'
        f'<meta http-equiv="refresh" content="0;url={way}"></head>'
        f'<body><p><a href="{way}">Go on</a></p></body></html>'
    )


def inside(where: str) -> str:
    """A place of ours to go to; the front page for what is none."""
    good = where.startswith("/") and not where.startswith(("//", "/\\")) and where.isprintable()
    return where if good and "\\" not in where and len(where) < 4_000 else "/"
