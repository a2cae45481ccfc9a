"""The tables of the desk: which letters come into the store, how long they stay, how they are grouped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from deadletter.config.tables.base import (
    Keeping,
    Name,
    Names,
    Pattern,
    Seldom,
    Session,
    Table,
    TableFinding,
    as_written,
)
from deadletter.core.access.field_masks import MASK_PATTERN
from deadletter.core.access.token_hash import HASH_PATTERN
from deadletter.core.grouping.grouping_rules import unknown_slots
from deadletter.core.letter.header_values import MAX_NAME_BYTES
from deadletter.core.letter.names import PARKED, is_ours

_MAX_LETTERS = 2**53
"""More than any store holds, and every reader of JSON can count to it."""


ISSUER_PATTERN = r"^(https://[^\s?#]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/[^\s?#]*)?)$"
ADDRESS_PATTERN = r"^(https?://)?[A-Za-z0-9.-]+(:\d{1,5})?/?$"
CategoryName: TypeAlias = Literal["transient", "overload", "data", "permanent", "bug", "unknown"]


class RetentionTable(Table):
    age_ms: Keeping | None = Field(
        default=None,
        alias="age",
        description="Letters that came into the store longer ago than this are forgotten. Without it: never.",
    )
    letters: int | None = Field(
        default=None,
        ge=0,
        le=_MAX_LETTERS,
        description="Of more letters than this the oldest are forgotten. Without it: any number is kept.",
    )
    bytes: int | None = Field(
        default=None,
        ge=0,
        le=_MAX_LETTERS,
        description="Of more bytes than this, counted in their bodies, the oldest letters are forgotten. "
        "Without it: any number is kept.",
    )
    discarded_ms: Keeping | None = Field(
        default=None,
        alias="discarded",
        description="How long a discarded letter can be taken back. Without it: 7d.",
    )


class DeskQueueTable(Table):
    name: Name = Field(description="A dead-letter queue whose letters come into the store as well.")
    vhost: Name | None = Field(default=None, description="Its vhost. Without it: that of broker.url.")
    retention: RetentionTable = Field(
        default=as_written({}), description="How long its letters stay; what is not said is as in [desk]."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if is_ours(self.name) and self.name != PARKED:
            yield TableFinding(
                ("name",), f"a queue of yours, or {PARKED}; the letters of our other queues are under way"
            )


class GroupRuleTable(Table):
    group: Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)] | None = Field(
        default=None,
        description="The name of the group. {default}, {origin}, {error}, {culprit} and {header:NAME} stand "
        "for what the letter says; {default} is its group without this rule. Without it: as it is.",
    )
    category: CategoryName | None = Field(
        default=None, description="What kind of failure it is. Without it: by the group's past, or a guess."
    )
    origin: Pattern | None = Field(default=None, description="Of letters of this origin; * for any run.")
    error: Pattern | None = Field(
        default=None, description="Whose error is of this type, without its module; * for any run."
    )
    message: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        default=None, description="Whose error says this; * for any run."
    )
    header: Annotated[dict[Name, str], Field(min_length=1)] | None = Field(
        default=None, description="With such headers; * for any run."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if self.group is None and self.category is None:
            yield TableFinding(("group",), "a name, or a category")
        if wrong := unknown_slots(self.group or ""):
            yield TableFinding(
                ("group",),
                "{default}, {origin}, {error}, {culprit} or {header:NAME}, and not " + ", ".join(wrong),
            )


class BodySchemaTable(Table):
    queue: Pattern = Field(description="Of letters of this origin; * for any run. The first that fits holds.")
    file: Annotated[str, Field(min_length=1, max_length=4_096)] = Field(
        description="The JSON schema that an edited body must keep. It refers to nothing outside itself."
    )


class ReplayRuleTable(Table):
    name: Name = Field(description="What the rule is called.")
    enabled: bool = Field(default=False, description="Whether it may start replays.")
    when: Literal["every", "healthy", "deployed"] = Field(
        description="The occasion: every (as often as every says), healthy (health is good again), deployed "
        "(a new release of service was told).",
    )
    group: Name | None = Field(default=None, description="Of letters of this group: its number or key.")
    origin: Name | None = Field(default=None, description="Of letters of this origin.")
    error: Name | None = Field(default=None, description="Of letters with these words in their error.")
    every_ms: Seldom = Field(
        default=as_written("1h"), alias="every", description="At least so long between two runs."
    )
    health: Annotated[str, Field(pattern="^https?://", max_length=2_000)] | None = Field(
        default=None, description="The URL that answers 2xx when what failed is well; for when = healthy."
    )
    service: Name | None = Field(
        default=None, description="The service whose releases are told; for when = deployed."
    )
    recipe: Name | None = Field(default=None, description="The recipe by which letters are edited first.")
    give_up: int = Field(
        default=5, ge=1, le=1_000, description="After so many runs in a row that cured nothing it gives up."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if self.group is None and self.origin is None and self.error is None:
            yield TableFinding(("group",), "group, origin or error: which letters the rule is for")
        if self.when == "healthy" and self.health is None:
            yield TableFinding(("health",), "a URL, as when is healthy")
        if self.when == "deployed" and self.service is None:
            yield TableFinding(("service",), "the name of a service, as when is deployed")


class DeskTokenTable(Table):
    name: Name = Field(description="Whose it is: this name stands in the audit.")
    role: Literal["viewer", "operator", "admin"] = Field(
        description="What they may do: viewer looks, operator works on letters, admin does everything."
    )
    hash: Annotated[str, Field(pattern=HASH_PATTERN)] = Field(
        description="The hash of the token, as dlq token new tells it."
    )
    vhosts: Names = Field(default=["*"], description="They see letters of these vhosts; * for any run.")
    queues: Names = Field(
        default=["*"], description="They see letters that failed in these queues; * for any run."
    )
    sees_masked: bool = Field(
        default=False, description="Whether they see what desk.mask hides. An admin always does."
    )


class OidcRoleTable(Table):
    value: Name = Field(description="Somebody whose role_claim has this; * is everybody with an account.")
    role: Literal["viewer", "operator", "admin"] = Field(description="What they may do.")
    vhosts: Names = Field(default=["*"], description="They see letters of these vhosts; * for any run.")
    queues: Names = Field(
        default=["*"], description="They see letters that failed in these queues; * for any run."
    )
    sees_masked: bool = Field(default=False, description="Whether they see what desk.mask hides.")


class OidcTable(Table):
    issuer: Annotated[str, Field(pattern=ISSUER_PATTERN, max_length=1_000)] | None = Field(
        default=None,
        description="Where people have accounts: the address of an OpenID Connect provider. Without it: "
        "nowhere.",
    )
    client_id: Name = Field(
        default="deadletter",
        description="As what it knows us; its secret, if there is one, is an environment variable.",
    )
    name: Name = Field(default="your account", description="What people call these accounts.")
    scopes: Names = Field(default=["openid", "profile", "email"], description="What is asked for.")
    role_claim: Name = Field(
        default="groups", description="The claim that roles are told by; a.b is b inside of a."
    )
    roles: list[OidcRoleTable] = Field(
        default=[], description="Who may do what; the first that fits decides."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if self.issuer is not None and not self.roles:
            yield TableFinding(("roles",), "at least one, or nobody comes in")
        if "openid" not in self.scopes:
            yield TableFinding(("scopes",), "openid among them")


class Desk(Table):
    ingest: bool = Field(
        default=True,
        description=f"Whether dlq serve takes the letters of {PARKED} and of desk.queues into the store, "
        "where they are grouped and found. Unless somebody says true: only where the store outlasts a "
        "restart.",
    )
    batch: int | None = Field(
        default=None,
        ge=1,
        le=5_000,
        description="At most so many letters come into the store at once. Without it: 1000, on PostgreSQL "
        "2000.",
    )
    retention: RetentionTable = Field(
        default=as_written({}), description="How long letters stay in the store."
    )
    queues: list[DeskQueueTable] = Field(
        default=[], description=f"Further queues, beside {PARKED}, whose letters come into the store."
    )
    groups: list[GroupRuleTable] = Field(
        default=[], description="Own rules for what is one group; the first that fits decides."
    )
    schemas: list[BodySchemaTable] = Field(
        default=[], description="What bodies must be after an edit, by queue."
    )
    replay_rules: list[ReplayRuleTable] = Field(
        default=[], description="When letters are replayed without a person; each is off unless enabled."
    )
    own_code: list[Pattern] = Field(
        default=[], description="Frames of a stack that are the application's: path or module; * for any run."
    )
    foreign_code: list[Pattern] = Field(default=[], description="Frames of a stack that are not.")
    page: bool | None = Field(
        default=None,
        description="Whether there is a page. Without it: on this machine, and elsewhere where somebody can "
        "sign in.",
    )
    addresses: list[Annotated[str, Field(pattern=ADDRESS_PATTERN, max_length=300)]] = Field(
        default=[],
        description="Under which people reach the page from elsewhere, as https://desk.example.com. Requests "
        "for other names are refused.",
    )
    session_idle_ms: Session = Field(
        default=as_written("8h"), alias="session_idle", description="Who does nothing so long signs in again."
    )
    session_end_ms: Session = Field(
        default=as_written("7d"), alias="session_end", description="And whatever they do, after so long."
    )
    tokens: list[DeskTokenTable] = Field(default=[], description="Who may come in, and do what.")
    oidc: OidcTable = Field(default=as_written({}), description="Accounts of the house.")
    mask: list[Annotated[str, Field(pattern=MASK_PATTERN, max_length=300)]] = Field(
        default=[],
        description="Fields that admins alone see, as body.card.number or header.authorization; * stands for "
        "any run in a name, and lists are looked through.",
    )

    @property
    def asked(self) -> bool:
        """Whether somebody wants letters in the store, and not only nobody minds."""
        return self.ingest and ("ingest" in self.model_fields_set or bool(self.queues))

    def contradictions(self) -> Iterator[TableFinding]:
        seen: set[tuple[str, str | None]] = set()
        for place, queue in enumerate(self.queues):
            if (queue.name, queue.vhost) in seen:
                yield TableFinding(("queues", place, "name"), "each queue once")
            seen.add((queue.name, queue.vhost))
        people: set[str] = set()
        for place, token in enumerate(self.tokens):
            if token.name in people:
                yield TableFinding(("tokens", place, "name"), "each name once")
            if any(token.hash == other.hash for other in self.tokens[:place]):
                yield TableFinding(("tokens", place, "hash"), "each token once")
            people.add(token.name)
        if self.session_idle_ms > self.session_end_ms:
            yield TableFinding(("session_idle",), "at most session_end")
        rules: set[str] = set()
        for place, rule in enumerate(self.replay_rules):
            if rule.name in rules:
                yield TableFinding(("replay_rules", place, "name"), "each rule once")
            rules.add(rule.name)
