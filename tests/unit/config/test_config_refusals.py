"""What a configuration cannot be: each with its key, what was expected, what came and where; all at once.

About `config.validate`, `config.cross_checks`, `config.secrets`, `config.urls`, `config.tables.base`,
`config.tables.policies`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deadletter.config import load
from deadletter.config.secrets import shown, without_password, without_token
from deadletter.errors import ConfigError, Problem, UsageError


def problems(
    tmp_path: Path,
    text: str = "",
    *,
    environment: dict[str, str] | None = None,
    options: dict[str, object] | None = None,
    name: str = "deadletter.toml",
) -> tuple[Problem, ...]:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(directory=tmp_path, home=tmp_path / "home", environment=environment or {}, options=options)
    return raised.value.problems


def said(tmp_path: Path, text: str = "") -> list[str]:
    """`line key: expected` of each problem."""
    return [f"{p.source.rpartition(':')[2]} {p.key}: {p.expected}" for p in problems(tmp_path, text)]


ALL_AT_ONCE = """\
brokr = 3
[broker]
url = "http://u:hunter2@host"
api = "ftp://x:hunter2@y"
[store]
url = "mysql://u:hunter2@h/d"
[[policies]]
name = "a"
retrys = 3
retries = -1
backoff = {kind = "fixed", delays = ["1s", -5,
  "5s"], cap = "2s"}
[[policies]]
name = "all"
then = "explode"
[policies.backoff]
kind = "linear"
step = "1h"
cap = "1s"
floor = "2s"
factor = 3
[[policies]]
name = "a"
match = {queue = "x", body = "1 +"}
[[watches]]
dlq = "x.dlq"
policies = ["al"]
every = "3s"
[default_policy]
retries = 2
deadline = "100ms"
"""


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, ALL_AT_ONCE, environment={"DLQ_CHECK_MAX_RETRIES": "few", "DLQ_ULR": "x"})
    where = str(tmp_path / "deadletter.toml")
    assert sorted((p.source.removeprefix(where), p.key) for p in found) == sorted(
        [
            ("environment", "DLQ_ULR"),
            (":1", "brokr"),
            (":3", "broker.url"),
            (":4", "broker.api"),
            (":6", "store.url"),
            (":9", "policies[a].retrys"),
            (":10", "policies[a].retries"),
            (":11", "policies[a].backoff.delays[2]"),
            (":13", "policies[all]"),  # never reached
            (":15", "policies[all].then"),
            (":19", "policies[all].backoff.cap"),
            (":21", "policies[all].backoff.factor"),
            (":22", "policies[a]"),  # never reached
            (":23", "policies[a].name"),
            (":24", "policies[a].match.body"),
            (":27", "watches[x.dlq].policies[1]"),
            (":28", "watches[x.dlq].every"),
            (":29", "default_policy"),  # never reached
            (":31", "default_policy.deadline"),
            ("DLQ_CHECK_MAX_RETRIES", "check.max_retries"),
        ]
    )
    assert "hunter2" not in "\n".join(map(str, found))


def test_a_problem_is_one_line_and_the_error_lists_them(tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text('[check]\nmax_retries = "3"\ncreat = true\n')
    with pytest.raises(UsageError) as raised:
        load(directory=tmp_path, home=tmp_path, environment={})
    assert str(raised.value).replace(str(tmp_path) + "/", "") == (
        "2 problems in the configuration:\n"
        "  deadletter.toml:3: check.creat: expected a key there is (did you mean create?), got this key\n"
        '  deadletter.toml:2: check.max_retries: expected a whole number, got "3"'
    )


def policy(**lines: str) -> str:
    body = "\n".join(f"{key.replace('__', '.')} = {value}" for key, value in lines.items())
    return f'[[policies]]\nname = "p"\n{body}\n'


FIXED = '{kind = "fixed", delays = %s}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # unknown keys
        ("polices = []", "1 polices: a key there is (did you mean policies?)"),
        ('[broker]\nuri = "x"', "2 broker.uri: a key there is (did you mean url?)"),
        ("[alerts.depth]\nxyzzy = 1", "2 alerts.depth.xyzzy: one of critical, warning"),
        (policy(match="{que = 'x'}"), "3 policies[p].match.que: a key there is (did you mean queue?)"),
        (policy(errors="[{error_type = 'E', retry = 1}]"), "3 policies[p].errors[1].retry: a key there is"),
        # types and units
        (policy(retries='"3"'), "3 policies[p].retries: a whole number"),
        (policy(retries="3.0"), "3 policies[p].retries: a whole number"),
        (policy(retries="true"), "3 policies[p].retries: a whole number"),
        (policy(retries="10001"), "3 policies[p].retries: at most 10000"),
        (policy(deadline="-30"), '3 policies[p].deadline: a time such as "500ms"'),
        (policy(deadline='"30m1h"'), '3 policies[p].deadline: a time such as "500ms"'),
        (policy(deadline='"1 week"'), '3 policies[p].deadline: a time such as "500ms"'),
        (policy(deadline='"60d"'), "3 policies[p].deadline: a time from 1 ms to 49.7 d"),
        (policy(deadline='"0s"'), "3 policies[p].deadline: a time from 1 ms"),
        (policy(then='"retry"'), "3 policies[p].then: 'park', 'discard' or 'leave'"),
        (policy(count_by='"reason:bored"'), "3 policies[p].count_by: reason: with one of"),
        (policy(match='"orders"'), "3 policies[p].match: a table"),
        (policy(match='{reason = "bored"}'), "3 policies[p].match.reason: 'rejected', 'expired'"),
        (policy(match='{reason = ["rejected", "bored"]}'), "3 policies[p].match.reason[2]: 'rejected'"),
        (policy(match="{header = {n = 3}}"), "3 policies[p].match.header.n: a text"),
        ("policies = 3", "1 policies: a list of tables: [[policies]]"),
        ("policies = [3]", "1 policies[1]: a table"),
        ("[policies]\nname = 'x'", "1 policies: a list of tables"),
        ("broker = 3", "1 broker: a table"),
        ("[check]\ncreate = 1", "2 check.create: true or false"),
        ("[check]\ntarget_type = 'stream'", "2 check.target_type: 'quorum' or 'classic'"),
        ("[[watches]]\ndlq = 'x'\nmode = 'often'", "3 watches[x].mode: 'consume', 'sweep'"),
        # back-off
        (policy(backoff='{first = "1s"}'), '3 policies[p].backoff.kind: a table with kind = "fixed"'),
        (policy(backoff='{kind = "cubic"}'), "3 policies[p].backoff.kind: fixed or linear or exponential"),
        (policy(backoff='"1s"'), "3 policies[p].backoff: a table"),
        (policy(backoff='{kind = "linear"}'), "3 policies[p].backoff.step: a value"),
        (policy(backoff=FIXED % "[]"), "3 policies[p].backoff.delays: at least one entry"),
        (policy(backoff='{kind = "fixed", delays = ["1s"], step = "1s"}'), "belongs to kind = linear)"),
        (policy(backoff='{kind = "exponential", first = "1s", factor = 0.5}'), "factor: at least 1"),
        (policy(backoff='{kind = "exponential", first = "1s", factor = nan}'), "factor: "),
        (policy(backoff='{kind = "exponential", first = "1s", jitter = 1}'), "jitter: less than 1"),
        (policy(backoff='{kind = "exponential", first = "2d"}'), "first: at most the cap of 1 d"),
        (
            policy(backoff='{kind = "exponential", first = "1s", floor = "2s"}'),
            "first: at least the floor of 2 s",
        ),
        (policy(backoff='{kind = "linear", step = "2s", cap = "1s"}'), "step: at most the cap of 1 s"),
        (
            policy(backoff='{kind = "linear", step = "5s", first = "1s", floor = "2s"}'),
            "first: at least the floor",
        ),
        (
            policy(backoff='{kind = "linear", step = "1s", cap = "1s", floor = "2s"}'),
            "cap: at least the floor",
        ),
        (policy(backoff='{kind = "fixed", delays = ["1s", "9s"], cap = "5s"}'), "delays[2]: at most the cap"),
        (
            policy(backoff=FIXED % [f"{n}s" for n in range(1, 30)]),
            "3 policies[p].backoff.delays: at most 20 different delays",
        ),
        # patterns that match nothing
        (policy(match="{queue = ''}"), "3 policies[p].match.queue: a text that is not empty"),
        (policy(match="{queue = 'deadletter.x*'}"), "3 policies[p].match.queue: a queue a letter can die in"),
        (policy(match=f"{{queue = '{'x' * 256}'}}"), "3 policies[p].match.queue: at most 255 characters"),
        (
            policy(match="{routing_key = 'order*.x'}"),
            "3 policies[p].match.routing_key: * and # as whole words",
        ),
        (policy(match="{routing_key = 'a.#b'}"), "3 policies[p].match.routing_key: * and # as whole words"),
        (policy(match="{content_type = 'Application/JSON'}"), "content_type: a media type in lower case"),
        (policy(match="{content_type = 'text/plain; charset=utf-8'}"), "content_type: a media type in lower"),
        (policy(match="{reason = []}"), "3 policies[p].match.reason: at least one entry"),
        (policy(match="{error_type = []}"), "3 policies[p].match.error_type: at least one entry"),
        (policy(match="{error_type = ''}"), "3 policies[p].match.error_type: a text that is not empty"),
        (policy(match="{header = {}}"), "3 policies[p].match.header: at least one entry"),
        (policy(match="{header = {'' = 'x'}}"), "3 policies[p].match.header."),
        (policy(match="{body = ''}"), "3 policies[p].match.body: a text that is not empty"),
        # jq
        (policy(match="{body = '.a ='}"), "3 policies[p].match.body: a jq program (syntax error"),
        (policy(match="{body = 'nope(1)'}"), "3 policies[p].match.body: a jq program (nope/1 is not defined"),
        (policy(match="{body = 'include \"x\"; .'}"), "3 policies[p].match.body: a jq program ("),
        # policies among each other
        (policy() + policy(), "5 policies[p].name: a name of its own"),
        (
            policy() + "[[policies]]\nname = 'q'\nmatch.queue = 'x'",
            "letters that no policy before it takes (p at",
        ),
        (
            policy(match="{queue = 'o*'}")
            + "[[policies]]\nname = 'q'\nmatch = {queue = 'orders', reason = 'expired'}",
            "4 policies[q]: letters that no policy before it takes (p at",
        ),
        (policy() + "[default_policy]\nretries = 1", "4 default_policy: letters that no policy takes (p has"),
        ('[[policies]]\nname = "default"', "2 policies[default].name: another name"),
        (policy(deadline='"700ms"'), "3 policies[p].deadline: at least the first delay of 800 ms"),
        (
            policy(deadline='"30s"', errors=f'[{{error_type = "E", backoff = {FIXED % ["60s"]}}}]'),
            "3 policies[p].deadline: at least the first delay of 1 min",
        ),
        (policy(errors="[{error_type = 'E'}]"), "3 policies[p].errors[1]: retries, backoff or then"),
        (
            policy(errors="[{error_type = 'E*', retries = 1}, {error_type = ['E1', 'E2'], retries = 2}]"),
            "3 policies[p].errors[2].error_type: errors that no rule before it takes (E* takes",
        ),
        # watches
        ("[[watches]]\nmode = 'consume'", "1 watches[1].dlq: a value"),
        ("[[watches]]\ndlq = 'deadletter.parked'", "2 watches[deadletter.parked].dlq: a queue of yours"),
        (
            "[[watches]]\ndlq = 'x'\npolicies = ['y']",
            "3 watches[x].policies[1]: the name of a policy (there are: none)",
        ),
        (
            policy() + "[[watches]]\ndlq = 'x'\npolicies = ['P']",
            "6 watches[x].policies[1]: the name of a policy (did",
        ),
        ("[[watches]]\ndlq = 'x'\npolicies = []", "3 watches[x].policies: at least one entry"),
        (
            policy() + "[[watches]]\ndlq = 'x'\npolicies = ['p', 'p']",
            "6 watches[x].policies[2]: each policy once",
        ),
        ("[[watches]]\ndlq = 'x'\nevery = '1s'", '3 watches[x].every: nothing with mode = "consume"'),
        ("[[watches]]\ndlq = 'x'\nlimit_per_boot = 3", "3 watches[x].limit_per_boot: nothing with mode"),
        (
            "[[watches]]\ndlq = 'x'\nmode = 'sweep'\nevery = '1s'\nbackoff = {kind = 'linear', step = '1s'}",
            "4 watches[x].every: every or backoff, not both",
        ),
        (
            "[[watches]]\ndlq = 'x'\n[[watches]]\ndlq = 'x'",
            "4 watches[x].dlq: queues that no watch before it takes",
        ),
        (
            "[[watches]]\ndlq = '*.dlq'\n[[watches]]\ndlq = 'a.dlq'",
            "4 watches[a.dlq].dlq: queues that no watch",
        ),
        # alerts, check
        ("[alerts]\ndepth = {warning = 50}", "2 alerts.depth.warning: less than critical, which is 50"),
        (
            "[alerts.age]\nwarning = '2h'\ncritical = '1h'",
            "2 alerts.age.warning: less than critical, which is 1 h",
        ),
        ("[alerts]\nchannels = ['log', 'log']", "2 alerts.channels[2]: each channel once"),
        ("[alerts]\nchannels = ['nowhere']", "2 alerts.channels[1]: log, the http(s) URL"),
        ("[check]\ndlq = 'dlq.*'\ntarget = '*.dead.*'", "3 check.target: at most as many * as dlq has"),
        ("[check]\ndlq = 'x'\ntarget = 'x'", "3 check.target: another queue than dlq"),
        # addresses
        ("[broker]\nurl = 'rabbit.example'", "2 broker.url: an AMQP URL such as"),
        ("[broker]\nurl = 'amqp://h/a/b'", "2 broker.url: an AMQP URL such as"),
        ("[broker]\nurl = []", "2 broker.url: at least one entry"),
        ("[broker]\nurl = ['amqp://a/x', 'amqp://b/y']", "2 broker.url: an AMQP URL such as"),
        ("[broker]\napi = 'rabbit:15672'", "2 broker.api: the URL of a management API"),
        ("[broker]\napi = 'http://h:port'", "2 broker.api: the URL of a management API"),
        ("[store]\nurl = 'sqlite://'", "2 store.url: sqlite:///path/to/file.db or"),
        # the file itself
        ("a = ", "1 file: TOML"),
        ("[a]\nb = 1\nb = 2", "3 file: TOML"),
        ("x = 'open", "1 file: TOML"),
    ],
)
def test_refused(tmp_path: Path, text: str, line: str) -> None:
    found = said(tmp_path, text)
    assert any(line in problem for problem in found), found


@pytest.mark.parametrize(
    "text",
    [
        policy(match="{routing_key = ''}"),  # the empty key is one
        policy(match="{content_type = ''}"),
        policy(match="{header = {x = ''}}"),
        policy(match="{queue = 'a'}") + "[[policies]]\nname = 'q'\nmatch.queue = 'a*'",
        policy(match="{queue = '*'}") + "[[policies]]\nname = 'q'",  # a letter may have no origin
        policy(match="{routing_key = '*'}") + "[[policies]]\nname = 'q'\nmatch.routing_key = '#'",
        policy(match="{queue = 'a', body = '.x'}") + "[[policies]]\nname = 'q'\nmatch.queue = 'a'",
        policy(match="{reason = 'expired'}")
        + "[[policies]]\nname = 'q'\nmatch.reason = ['expired', 'maxlen']",
        policy(),  # a rule that takes all, and no default of one's own
        policy(retries="0", deadline='"1ms"'),
        policy(deadline='"800ms"'),
        policy(backoff='{kind = "linear", step = "1s", floor = "1s", cap = "1s"}'),
        policy(backoff='{kind = "exponential", first = "1s", floor = 0}'),
        "[[watches]]\ndlq = 'a.dlq'\n[[watches]]\ndlq = '*.dlq'\n[[watches]]\ndlq = 'a.dlq'\nvhost = 'v'",
        "[check]\ndlq = '*.dlq.*'\ntarget = 'dead'",
        "[alerts]\nchannels = []",
        "[store]\nurl = 'postgresql+asyncpg://h/d'",
        "",
    ],
)
def test_not_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "deadletter.toml").write_text(text)
    load(directory=tmp_path, home=tmp_path / "home", environment={})


def test_variables_that_are_nearly_ours(tmp_path: Path) -> None:
    environment = {
        "DLQ_ULR": "amqp://u:hunter2@h",
        "DLQ_STORE_PASSWORD": "hunter2",
        "DLQ_ALERTS_DEPTH_WARN": "1",
        # not ours, and no reason to stop
        "DLQ_BROKERS": "/opt/brokers",
        "DLQ_TEST_BROKER": "4.3",
        "DLQ_SERVICE_HOST": "10.0.0.1",
        "DLQ_STORE_SERVICE_PORT_HTTP": "80",
        "DLQ_STORE_PORT_5432_TCP_ADDR": "10.0.0.2",
        "DLQ_CHECK_PORT": "tcp://10.0.0.1:80",
        "PATH": "/bin",
    }
    found = problems(tmp_path, environment=environment)
    assert [p.key for p in found] == ["DLQ_ALERTS_DEPTH_WARN", "DLQ_STORE_PASSWORD", "DLQ_ULR"]
    assert "did you mean DLQ_ALERTS_DEPTH_WARNING?" in found[0].expected
    assert "did you mean DLQ_URL?" in found[2].expected
    assert "hunter2" not in str(found)


def test_options_and_variables_are_named_as_sources(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        environment={"DLQ_DEFAULT_POLICY_RETRIES": "-3", "DLQ_DEFAULT_POLICY_BACKOFF_CAP": "7"},
        options={"broker.url": "nope", "check.max_retries": -1},
    )
    assert {(p.source, p.key) for p in found} == {
        ("DLQ_DEFAULT_POLICY_RETRIES", "default_policy.retries"),
        ("DLQ_DEFAULT_POLICY_BACKOFF_CAP", "default_policy.backoff.kind"),
        ("--url", "broker.url"),
        ("--max-retries", "check.max_retries"),
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("broker:\n  url: amqp://h\n  url: amqp://g", "3 broker.url: one value"),
        ("- a", "1 file: a table of settings"),
        ("a: [", "file: YAML"),
        ("broker: !!python/object:os.system {}", "1 file: a plain value"),
        ("broker:\n  name: !!python/name:os.system x", "2 file: a plain value"),
        ("a: &a [*a]", "file: values inside values"),
        ("? [a]\n: b", "1 file: a name for a key"),
        ("check:\n  create: maybe", "2 check.create: true or false"),
    ],
)
def test_yaml_is_refused_with_its_line_too(tmp_path: Path, text: str, line: str) -> None:
    found = problems(tmp_path, text, name="deadletter.yaml")
    lines = [f"{p.source.rpartition(':')[2]} {p.key}: {p.expected}" for p in found]
    assert any(line in problem for problem in lines), lines


def test_yaml_that_grows_is_stopped(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    assert "at most 100000 values" in str(problems(tmp_path, bomb, name="deadletter.yaml"))


def test_a_file_that_is_no_text_or_too_large(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"a = 1\nb = '\xff'")
    with pytest.raises(ConfigError, match=r"x.toml:2: file: expected text in UTF-8, got the byte 0xff"):
        load(config=file, environment={})
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="at most 1048576 bytes"):
        load(config=file, environment={})


URLS = [
    "amqp://user:hunter2@host/vhost",
    "amqps://user:hunter2@host:5671",
    "amqp://user:hunter2@hunter2@host",
    "amqp://user:hunter2@a,amqp://user:hunter2@b",
    "amqp://user:x,hunter2@host",
    "user:hunter2@host",
    "amqp://user:hunter2",
    "amqp:/user:hunter2@host",
    "postgresql://user:hunter2@host/db?sslpassword=hunter2&x=1",
    "http://host/?token=hunter2",
    "amqp://user@host/vhost?password=hunter2",
    "amqp://user:hunter2@host:port/",
    "amqp://:hunter2@host",
    "ftp://user:hunter2@[::1",
]


@pytest.mark.parametrize("url", URLS)
def test_no_password_is_ever_shown(tmp_path: Path, url: str) -> None:
    assert "hunter2" not in without_password(url)
    assert "hunter2" not in shown({"a": [url]})
    for key in ("broker.url", "broker.api", "store.url"):
        try:
            settings = load(directory=tmp_path, home=tmp_path, environment={}, options={key: url})
        except ConfigError as error:
            assert "hunter2" not in str(error)  # noqa: PT017 it may load, and then it is shown
        else:
            assert "hunter2" not in str(settings.effective)
            assert "hunter2" not in repr(settings)


def test_without_a_password_a_url_is_shown_whole() -> None:
    for url in (
        "amqp://host:5672/vhost",
        "amqp://user@host",
        "http://[::1]:15672/api",
        "sqlite:///a/b.db",
        "plain",
    ):
        assert without_password(url) == url


def test_channels_show_no_token() -> None:
    assert without_token("log") == "log"
    assert without_token("https://hooks.slack.com/services/T0/B0/XX?a=b") == "https://hooks.slack.com/***"
    assert without_token("https://u:p@h.example") == "https://h.example/***"
    assert without_token("tgram://123:token/chat") == "tgram://***"
    assert without_token("sekret-token") == "***"
