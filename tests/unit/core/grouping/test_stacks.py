"""Stacks of seven languages, as they are written. About `core.grouping.stacks`, `core.grouping.in_app`."""

from __future__ import annotations

import traceback

import pytest

from deadletter.core.grouping.in_app import BY_DEFAULT, OwnCode
from deadletter.core.grouping.stacks import Frame, read_stack

JAVA = """java.lang.IllegalStateException: Order 17 is closed
\tat com.shop.orders.OrderService.close(OrderService.java:42)
\tat com.shop.orders.Listener$$EnhancerBySpringCGLIB$$1f.on(<generated>)
\tat org.springframework.amqp.rabbit.Foo.bar(Foo.java:1)
\t... 12 more
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\tat com.shop.db.Pool.get(Pool.java:9)
"""
NODE = """TypeError: Cannot read properties of undefined (reading 'id')
    at handle (/srv/shop/app/orders.js:12:5)
    at async Consumer.run (/srv/shop/node_modules/amqplib/lib/consumer.js:1:2)
    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)
    [cause]: Error: upstream
    at /srv/shop/app/http.js:3:9"""
DOTNET = """System.InvalidOperationException: Outer 5 ---> System.Net.Http.HttpRequestException: Inner
   at System.Net.Http.Client.Send(String a)
   at Shop.Orders.Client.Get(Int32 id) in /src/Client.cs:line 12
   --- End of inner exception stack trace ---
   at Shop.Orders.Handler.Handle(Order o) in /src/Handler.cs:line 1"""
PHP = """RuntimeException: Card 4711 refused
#0 /srv/shop/src/Handler.php(12): App\\Handler->charge(Object(App\\Order))
#1 /srv/shop/vendor/symfony/messenger/Bus.php(1): Symfony\\Bus->call()
#2 {main}"""
RUBY = """/srv/shop/lib/orders.rb:12:in `charge'
/srv/shop/lib/orders.rb:4:in 'Shop::Orders#handle'
/usr/lib/ruby/gems/3.1.0/gems/bunny-2.2/lib/bunny/consumer.rb:5:in `call'"""
GO = """goroutine 1 [running]:
main.(*Handler).charge(0xc000010000, {0x1, 0x2})
\t/srv/shop/main.go:12 +0x1d
runtime.main()
\t/usr/local/go/src/runtime/proc.go:1 +0x2"""


def own(stack: str) -> list[list[str]]:
    """The application's frames of each error, the root cause first."""
    return [[str(f) for f in raised.frames if BY_DEFAULT.has(f)] for raised in read_stack(stack)]


@pytest.mark.parametrize(
    ("stack", "types", "frames"),
    [
        (
            JAVA,
            ["java.net.ConnectException", "java.lang.IllegalStateException"],
            [["com.shop.db.Pool:get"], ["com.shop.orders.Listener:on", "com.shop.orders.OrderService:close"]],
        ),
        (NODE, ["Error", "TypeError"], [["app/http:<anonymous>"], ["app/orders:handle"]]),
        (
            DOTNET,
            ["System.Net.Http.HttpRequestException", "System.InvalidOperationException"],
            [["Shop.Orders.Client:Get"], ["Shop.Orders.Handler:Handle"]],
        ),
        (PHP, ["RuntimeException"], [["src/Handler:App\\Handler->charge"]]),
        (RUBY, [""], [["lib/orders:Shop::Orders#handle", "lib/orders:charge"]]),
        (GO, [""], [["main.(*Handler):charge"]]),
    ],
    ids=["java", "node", "dotnet", "php", "ruby", "go"],
)
def test_a_stack_is_read(stack: str, types: list[str], frames: list[list[str]]) -> None:
    assert [raised.error_type for raised in read_stack(stack)] == types
    assert own(stack) == frames


def raised_from(work: object) -> str:
    assert callable(work)
    try:
        work()
    except Exception as error:  # noqa: BLE001 -- whatever it is, its stack is wanted
        return "".join(traceback.format_exception(error))
    raise AssertionError("it did not fail")


def deep(n: int) -> int:
    return deep(n + 1)


def chained() -> None:
    try:
        int("x")
    except ValueError as error:
        raise RuntimeError("outer\nsecond line") from error


def grouped() -> None:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


def test_pythons_chains_come_root_first_with_whole_messages() -> None:
    first, last = read_stack(raised_from(chained))
    assert (first.error_type, last.error_type) == ("ValueError", "RuntimeError")
    assert last.message == "outer\nsecond line"
    assert last.frames[-1].function == "chained"
    assert last.frames[-1].line.startswith("raise RuntimeError(")


def test_a_group_of_exceptions_is_read() -> None:
    (told, *_) = read_stack(raised_from(grouped))
    assert told.error_type == "ExceptionGroup"
    assert told.frames[-1].function == "grouped"


def test_a_recursion_is_bounded() -> None:
    (told,) = read_stack(raised_from(lambda: deep(0)))
    assert told.error_type == "RecursionError"
    assert len(told.frames) <= 400


@pytest.mark.parametrize("nothing", ["", "no stack at all", "\n\n\n", "at at at", 'File "x"'])
def test_what_is_no_stack_has_no_frames(nothing: str) -> None:
    assert all(not raised.frames for raised in read_stack(nothing))


@pytest.mark.parametrize("one", ["/srv/shop/releases/41/app/orders.py", "C:\\shop\\app\\orders.py"])
def test_a_module_is_the_end_of_its_path(one: str) -> None:
    (told,) = read_stack(f'Traceback (most recent call last):\n  File "{one}", line 3, in f\nValueError: x\n')
    assert str(told.frames[0]) == "app/orders:f"


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/srv/shop/app/orders.py", True),
        ("/srv/venv/lib/python3.12/site-packages/httpx/_client.py", False),
        ("/usr/lib/python3.11/json/decoder.py", False),
        ("/src/deadletter/consumer/handlers/calling.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("/srv/shop/node_modules/amqplib/x.js", False),
        ("node:internal/timers", False),
        ("/srv/shop/vendor/symfony/x.php", False),
    ],
)
def test_whose_a_frame_is(path: str, is_own: bool) -> None:
    assert BY_DEFAULT.has(Frame("m", "f", path)) is is_own


def test_the_file_decides_first() -> None:
    library = Frame("shoplib/x", "f", "/srv/venv/lib/python3.12/site-packages/shoplib/x.py")
    assert OwnCode(ours=("*/shoplib/*",)).has(library)
    assert not OwnCode(foreign=("*/generated/*",)).has(Frame("generated/x", "f", "/srv/shop/generated/x.py"))
