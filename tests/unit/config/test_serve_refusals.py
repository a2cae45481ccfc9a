"""What the settings of the service cannot be, and what is never shown of them.

About `config.cross_checks`, `config.environment`, `config.tables.serve`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deadletter.config import load
from deadletter.config.secrets import shown
from deadletter.config.settings import Settings
from deadletter.errors import ConfigError


def loaded(tmp_path: Path, text: str = "", *, name: str = "deadletter.toml", **environment: str) -> Settings:
    (tmp_path / name).write_text(text)
    return load(directory=tmp_path, home=tmp_path / "home", environment=environment)


def refused(tmp_path: Path, text: str = "", **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text, **environment)
    return [str(problem).replace(f"{tmp_path}/deadletter.toml:", "") for problem in raised.value.problems]


WATCH = "[[watches]]\n"
LEVELS = WATCH + "layout = 'levels'\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # serve
        (
            "[serve]\nlisten = ':80'",
            (
                "serve.listen: expected host:port such as 127.0.0.1:8025 or [::1]:8025, or "
                'off; 0.0.0.0:80 for every address, got ":80"'
            ),
        ),
        ("[serve]\nlisten = 80", "2: serve.listen: expected host:port such as"),
        ("[serve]\nname = ''", "2: serve.name: expected a text that is not empty"),
        ("[serve]\nlog_format = 'xml'", "2: serve.log_format: expected 'text' or 'json', got \"xml\""),
        ("[serve]\nlog_level = 'INFO'", "2: serve.log_level: expected 'debug', 'info', 'warning' or 'error'"),
        (
            "[serve]\ngrace = true",
            '2: serve.grace: expected a time such as "500ms", "90s", "15min", "1h30m" or "1d", or a number',
        ),
        ("[serve]\ngrace = 1801", "2: serve.grace: expected a time from 0 ms to 30 min, got 1801"),
        ("[serve]\ngrace = '31min'", "2: serve.grace: expected a time from 0 ms to 30 min"),
        ("[serve]\nprefetch = 0", "2: serve.prefetch: expected at least 1, got 0"),
        ("[serve]\nprefetch = 65536", "2: serve.prefetch: expected at most 65535"),
        ("[serve]\nsurvey = '999ms'", '2: serve.survey: expected a time from 1 s to 1 h, got "999ms"'),
        ("[serve]\nsurvey = '2h'", "2: serve.survey: expected a time from 1 s to 1 h"),
        ("[serve]\nheartbeat = '1s'", "2: serve.heartbeat: expected a time from 2 s to 10 min"),
        ("[serve]\nadjust_dlqs = 'yes'", "2: serve.adjust_dlqs: expected true or false"),
        ("[serve]\nport = 1", "2: serve.port: expected "),
        ("[server]\nlisten = 'off'", "1: server: expected a key there is (did you mean serve?)"),
        # watches
        (
            "[[watches]]\ndlq = 'x'\norigins = ['y', 'deadletter.due']",
            "watches[x].origins[2]: expected a queue of yours; those of deadletter.* are our own",
        ),
        ("[[watches]]\ndlq = 'x'\norigins = []", "watches[x].origins: expected "),
        ("[[watches]]\ndlq = 'x'\norigin_by = 'newest'", "watches[x].origin_by: expected 'failure'"),
        # guards
        ("[guards]\nmax_depth = 0", "2: guards.max_depth: expected at least 1"),
        ("[guards]\nbudget_per_minute = 0", "2: guards.budget_per_minute: expected at least 1"),
        ("[guards]\nbudget_share = 10.1", "2: guards.budget_share: expected at most 10"),
        ("[guards]\nbudget_share = -0.1", "2: guards.budget_share: expected at least 0"),
        ("[guards]\nbudget_share = nan", "2: guards.budget_share: expected "),
        (
            "[guards]\nbudget_floor_per_minute = 60",
            "guards.budget_floor_per_minute: expected nothing without budget_share, whose floor it is",
        ),
        (
            "[guards]\nbudget_share = 0.1\nbudget_per_minute = 5\nbudget_floor_per_minute = 6",
            "4: guards.budget_floor_per_minute: expected at most budget_per_minute, which is 5, got 6",
        ),
        (
            "[guards]\nbudget_share = 0.1\nbudget_floor_per_minute = 0",
            ("3: guards.budget_floor_per_minute: expected at least 1"),
        ),
        ("[guards]\ncopies = 0", "2: guards.copies: expected at least 1"),
        ("[guards]\nbreaker = true", "2: guards.breaker: expected a table, got true"),
        ("[guards.breaker]\nletters = 0", "2: guards.breaker.letters: expected at least 1"),
        ("[guards.breaker]\nshare = 0", "2: guards.breaker.share: expected more than 0"),
        ("[guards.breaker]\nshare = 1.1", "2: guards.breaker.share: expected at most 1"),
        (
            "[guards.breaker]\npause = '10min'",
            ('2: guards.breaker.pause: expected at most pause_max, which is 5 min, got "10min"'),
        ),
        (
            "[guards.breaker]\npause_max = '1s'",
            "guards.breaker.pause: expected at most pause_max, which is 1 s",
        ),
        ("[guards.breaker]\nwindow = 0", "2: guards.breaker.window: expected a time from 1 ms"),
        (
            "[guards.breaker]\npaus = '1s'",
            "2: guards.breaker.paus: expected a key there is (did you mean pause?)",
        ),
        # policies
        (
            "[default_policy]\nbudget_per_minute = 0",
            "2: default_policy.budget_per_minute: expected at least 1",
        ),
        (
            "[[policies]]\nname = 'p'\nbudget_per_minute = 1.5",
            "3: policies[p].budget_per_minute: expected a whole",
        ),
        # watches
        (
            WATCH + "dlq = 'x'\nlayout = 'sweep'",
            (
                '3: watches[x].layout: expected return or levels with mode = "consume": '
                "sweep has no delay, so a letter that keeps failing would go round as fast as the broker can"
            ),
        ),
        (
            WATCH + "dlq = 'x'\nlayout = 'loop'",
            "3: watches[x].layout: expected 'return', 'levels' or 'sweep'",
        ),
        (
            WATCH + "dlq = 'x'\ndelays = ['1s']",
            '3: watches[x].delays: expected nothing with layout = "return"; it belongs to layout = "levels"',
        ),
        (WATCH + "dlq = 'x'\nmode = 'manual'\ndelays = ['1s']", 'expected nothing with layout = "sweep"'),
        (
            WATCH + "mode = 'sweep'",
            (
                '1: watches[1].dlq: expected a value (only with layout = "levels" is it retry-queue '
                "without one), got nothing"
            ),
        ),
        (LEVELS + "delays = []", "3: watches[1].delays: expected at least one entry"),
        (LEVELS + f"delays = {['1s'] * 21}", "3: watches[1].delays: expected at most 20 entries"),
        (LEVELS + "delays = ['1s', []]", "3: watches[1].delays[2]: expected a time such as"),
        (
            LEVELS + WATCH + "layout = 'levels'\ndlq = 'y'\ndelays = ['10s', '15s']",
            (
                "watches[y].delays: expected the same as of 'retry-queue' at 1 (10 s, 15 s, 20 s): the "
                "queues queue.delay.<n> are shared by the whole vhost"
            ),
        ),
        (
            LEVELS + WATCH + "layout = 'levels'\ndlq = 'y'\nvhost = '/'\ndelays = ['1s']",
            "7: watches[y].delays: ",
        ),
        (
            LEVELS + "delays = ['1s']\n" + WATCH + "layout = 'levels'\ndlq = 'y'",
            "watches[y].delays: expected the same",
        ),
        (
            LEVELS + LEVELS,
            "3: watches[2].dlq: expected queues that no watch before it takes ('retry-queue' at 1",
        ),
        (
            LEVELS + WATCH + "dlq = 'retry-queue'\nvhost = '/'",
            "4: watches[retry-queue].dlq: expected queues that no",
        ),
        (
            LEVELS + WATCH + "dlq = 'retry-queue-*'\nmode = 'manual'",
            "watches[retry-queue-*].dlq: expected queues that letters die in; retry-queue-1 belongs to",
        ),
        (
            WATCH + "dlq = 'queue.*'\n" + LEVELS,
            ("2: watches[queue.*].dlq: expected queues that letters die in; queue.delay.1 belongs"),
        ),
        (
            LEVELS + "dlq = 'retry-*'",
            "3: watches[retry-*].dlq: expected queues that letters die in; retry-queue-1",
        ),
        (
            LEVELS + WATCH + "dlq = 'dlq-*'",
            "4: watches[dlq-*].dlq: expected queues that letters die in; dlq-queue",
        ),
        # alerts, store
        ("[alerts]\nheld = -1", "2: alerts.held: expected at least 0"),
        ("[alerts]\ngrowth_per_minute = '1'", "2: alerts.growth_per_minute: expected a whole number"),
        ("[alerts]\nbreaker = 1", "2: alerts.breaker: expected true or false"),
        ("[store]\nurl = 'None'", "2: store.url: expected sqlite:///path/to/file.db or postgresql://"),
    ],
)
def test_refused(tmp_path: Path, text: str, problem: str) -> None:
    found = [line.replace(str(tmp_path), "") for line in refused(tmp_path, text)]
    assert any(problem in line for line in found), found


def test_a_variable_that_is_nearly_one_is_refused(tmp_path: Path) -> None:
    for wrong, meant in (
        ("DLQ_SERVE_LOGFORMAT", "DLQ_SERVE_LOG_FORMAT"),
        ("DLQ_GUARDS_DEPTH", "DLQ_GUARDS_MAX_DEPTH"),
        ("DLQ_WATCHES_EVERY", "DLQ_EVERY"),
        ("DLQ_RETRY_INTERVAL_SECONDS", "DLQ_EVERY"),
        ("DLQ_WATCHES", "DLQ_WATCH"),
        ("DLQ_WATCHS", "DLQ_WATCH"),
        ("DLQ_WATCH_MODE", "DLQ_MODE"),
        ("DLQ_BROKER_URL", "DLQ_URL"),
        ("DLQ_STORE_URL", "DLQ_STORE"),
        ("DLQ_LOG_LEVEL", "DLQ_SERVE_LOG_LEVEL"),
        ("DLQ_API_TOKENS", "DLQ_API_TOKEN"),
    ):
        expected = f"expected a variable there is (did you mean {meant}?), got this one"
        assert refused(tmp_path, **{wrong: "1"}) == [f"environment: {wrong}: {expected}"]


@pytest.mark.parametrize("name", ["DLQ_POLICIES_RETRIES", "DLQ_WATCHES_LAYOUT", "DLQ_POLICY_0_NAME"])
def test_a_list_of_tables_has_no_variables(tmp_path: Path, name: str) -> None:
    (line,) = refused(tmp_path, **{name: "3"})
    assert (
        line
        == f"environment: {name}: expected a file for it: a list of tables has no variables, got this one"
    )


def test_a_mode_and_an_interval_need_queues(tmp_path: Path) -> None:
    found = refused(tmp_path, "[[watches]]\ndlq = 'a.dlq'", DLQ_MODE="sweep", DLQ_EVERY="15min")
    assert len(found) == 2
    assert all("expected DLQ_WATCH beside it" in line for line in found)


def test_what_is_wrong_with_a_watch_of_the_environment_names_its_variable(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, DLQ_WATCH="*.dlq", DLQ_EVERY="15 bananas")
    assert line.startswith("DLQ_EVERY: watches[*.dlq].every: expected a time")
    (line,) = refused(tmp_path, DLQ_WATCH="*.dlq", DLQ_MODE="now")
    assert line.startswith("DLQ_MODE: watches[*.dlq].mode: expected ")
    (line,) = refused(tmp_path, DLQ_WATCH="deadletter.parked")
    assert line.startswith("DLQ_WATCH: watches[deadletter.parked].dlq: expected a queue of yours")


def test_what_kubernetes_sets_for_a_service_of_that_name_is_no_setting(tmp_path: Path) -> None:
    loaded(tmp_path, DLQ_SERVE_SERVICE_HOST="10.0.0.1", DLQ_SERVE_PORT_8025_TCP="tcp://10.0.0.1:8025")


TOKENS = ["slack://T0/B0/hunter2", "https://hooks.example/hunter2", "mailto://a:hunter2@h", "hunter2://x"]


@pytest.mark.parametrize("token", TOKENS[:3])
def test_tokens_stay_hidden_beside_the_new_keys(tmp_path: Path, token: str) -> None:
    settings = loaded(tmp_path, f"[alerts]\nheld = 3\nchannels = ['log', '{token}']")
    assert "hunter2" not in str(settings.effective) + repr(settings)
    for text in (
        f"[alerts]\nheld = '{token}'",
        f"[alerts]\nbreaker = '{token}'",
        f"alerts = ['{token}']",
        f"alerts = '{token}'",
        f"[alerts]\nchannels = ['{token}', '{token}']\nheld = -1",
    ):
        assert "hunter2" not in "\n".join(refused(tmp_path, text))
    assert "hunter2" not in shown({"channels": [token]}, ("alerts",))
