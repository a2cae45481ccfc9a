"""The front page: what is here, in plain HTML, for whoever opens the address in a browser."""

from __future__ import annotations

from deadletter.core.text.safe_text import markup
from deadletter.desk.view import Status

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1rem }
code { font-size: .95em } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; vertical-align: top }
td.number, th.number { text-align: right } .trouble { border-left: .25rem solid #c33; padding-left: .75rem }
""".strip()
_SHOWN = 50


def front_page(status: Status) -> str:
    troubles = "".join(
        f'<p class="trouble"><strong>{markup(t.what)}</strong> does not work: {markup(t.why)}</p>'
        for t in status.troubles[:_SHOWN]
    )
    rows = "".join(
        f'<tr><td>{markup(q.queue)}</td><td class="number">{q.depth:,}</td>'
        f"<td>{markup(q.mode or 'ours')}</td><td>{markup(q.last_sweep or '–')}</td></tr>"
        for q in status.queues[:_SHOWN]
    )
    more = len(status.queues) - _SHOWN
    rows += f'<tr><td colspan="4">… and {more:,} more, in /api/status</td></tr>' if more > 0 else ""
    version = f", RabbitMQ {markup(status.broker_version)}" if status.broker_version else ""
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Deadletter</title>
<style>{_STYLE}</style></head>
<body>
<h1>Deadletter</h1>
<p><strong>{markup(status.stage)}</strong>: instance {markup(status.instance)} of dlq
{markup(status.version)}, at {markup(status.broker)}{version}.</p>
{troubles}
<table>
<thead><tr><th>queue</th><th class="number">letters</th><th>watched</th><th>last sweep</th></tr></thead>
<tbody>{rows or '<tr><td colspan="4">no queue has been seen yet</td></tr>'}</tbody>
</table>
<h2>What is here</h2>
<ul>
<li><a href="/api/status"><code>/api/status</code></a>: all of this and more, as JSON</li>
<li><a href="/metrics"><code>/metrics</code></a>: numbers for Prometheus</li>
<li><a href="/health/live"><code>/health/live</code></a> and
<a href="/health/ready"><code>/health/ready</code></a>: for orchestrators</li>
<li><code>POST /api/sweeps</code>: sweep now; on the command line: <code>dlq sweep</code></li>
<li><a href="/openapi.json"><code>/openapi.json</code></a>: all of it for programs</li>
</ul>
</body>
</html>
"""
