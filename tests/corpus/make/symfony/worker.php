<?php

// Symfony Messenger on AMQP: failed messages go to the failure transport, as the framework bundle sets it up.

foreach (['ErrorHandler', 'EventDispatcher', 'Serializer', 'PropertyAccess', 'Messenger'] as $component) {
    require_once "/usr/share/php/Symfony/Component/$component/autoload.php";
}
require_once '/usr/share/php/Symfony/Component/Messenger/Bridge/Amqp/autoload.php';
require_once __DIR__.'/src/Messages.php';
require_once __DIR__.'/src/Catalog.php';

use App\Catalog\Feed;
use App\Catalog\Pricing;
use App\Catalog\Shelf;
use App\Catalog\Store;
use App\Message\ImportPrices;
use App\Message\UpdateCatalog;
use Symfony\Component\ErrorHandler\ErrorHandler;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpTransport;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\Connection;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\EventListener\AddErrorDetailsStampListener;
use Symfony\Component\Messenger\EventListener\SendFailedMessageToFailureTransportListener;
use Symfony\Component\Messenger\Exception\UnrecoverableMessageHandlingException;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Transport\Serialization\Normalizer\FlattenExceptionNormalizer;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Transport\Serialization\Serializer;
use Symfony\Component\Messenger\Worker;
use Symfony\Component\Serializer\Encoder\JsonEncoder;
use Symfony\Component\Serializer\Normalizer\ArrayDenormalizer;
use Symfony\Component\Serializer\Normalizer\ObjectNormalizer;

ErrorHandler::register();

$release = (int) getenv('RELEASE');

final class UpdateCatalogHandler
{
    public function __invoke(UpdateCatalog|ImportPrices $message): void
    {
        [$class, $method] = explode('.', $message->type);
        if ('Stop' === $class) {
            throw new UnrecoverableMessageHandlingException("catalog {$message->data['number']} is closed");
        }
        $service = ['Pricing' => Pricing::class, 'Shelf' => Shelf::class, 'Store' => Store::class, 'Feed' => Feed::class][$class];
        (new $service())->$method($message->data);
    }
}

function transport(string $queue, $serializer, array $arguments = []): AmqpTransport
{
    $connection = Connection::fromDsn(getenv('AMQP_URL'), [
        'exchange' => ['name' => $queue, 'type' => 'fanout'],
        'queues' => [$queue => ['arguments' => $arguments]],
    ]);

    return new AmqpTransport($connection, $serializer);
}

$json = new Serializer(new \Symfony\Component\Serializer\Serializer(
    [new FlattenExceptionNormalizer(), new ArrayDenormalizer(), new ObjectNormalizer()],
    [new JsonEncoder()]
));
$dead = ['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => 'catalog.rejected'];
// Only the labels have a dead-letter exchange: what goes to a failure transport is rejected as well, and would die there too.
$receivers = ['catalog' => transport('catalog', $json), 'prices' => transport('prices', new PhpSerializer()), 'labels' => transport('labels', $json, $dead)];
$failures = ['catalog' => transport('catalog.failed', $json), 'prices' => transport('prices.failed', new PhpSerializer())];
transport('catalog.rejected', $json)->setup();

$number = fn (): int => random_int(1000, 899999);
$port = fn (): int => random_int(2000, 9000);
$cases = [
    ['sku-missing-when-pricing', 'Pricing.skuOf', fn () => ['line' => ['price' => $number()]], 'Warning: Undefined array key "sku" in Pricing'],
    ['sku-missing-on-shelf', 'Shelf.skuOn', fn () => ['line' => ['price' => $number()]], 'the same warning in Shelf: apart'],
    ['currency-unknown', 'Pricing.price', fn () => ['price' => $number(), 'currency' => ['CHF', 'JPY', 'XAU'][random_int(0, 2)]], 'Undefined array key of a table of rates, whichever'],
    ['currency-null', 'Pricing.price', fn () => ['price' => $number(), 'currency' => null], 'TypeError: must be of type string, null given, called in … on line …'],
    ['share-of-nothing', 'Pricing.share', fn () => ['saved' => $number(), 'total' => 0], 'DivisionByZeroError'],
    ['article-missing', 'Shelf.find', fn () => ['sku' => 'A-'.$number(), 'shelf' => 'S'.$number()], 'a DomainException with values'],
    ['keeper-null', 'Shelf.owner', fn () => ['owner' => null, 'number' => $number()], 'Call to a member function getName() on null'],
    ['shelf-closed', 'Shelf.check', fn () => ['open' => false, 'number' => $number()], 'a LogicException without a message'],
    ['size-unknown', 'Shelf.describe', fn () => ['size' => ['groß', '大', 'größer'][random_int(0, 2)], 'name' => 'Lampe '.$number()], 'a message beyond ASCII'],
    ['article-twice', 'Store.insert', fn () => ['number' => 1001, 'name' => 'lamp '.$number()], 'PDO: UNIQUE'],
    ['article-without-name', 'Store.insert', fn () => ['number' => $number(), 'name' => null], 'PDO from the same line: NOT NULL'],
    ['table-missing', 'Store.select', fn () => ['year' => 2026, 'number' => $number()], 'PDO: no such table'],
    ['feed-no-json', 'Feed.decode', fn () => ['json' => substr('{"feed": [1, 2, 3, 4, 5], "at": 1}', 0, random_int(9, 30))], 'JsonException: Syntax error, wherever it was cut'],
    ['feed-503', 'Feed.fetch', fn () => ['way' => '503', 'feed' => bin2hex(random_bytes(6))], 'file_get_contents: 503; url and port differ'],
    ['feed-404', 'Feed.fetch', fn () => ['way' => '404', 'feed' => bin2hex(random_bytes(6))], 'file_get_contents from the same line: 404, another cause'],
    ['ping-refused', 'Feed.ping', fn () => ['port' => $port()], 'connection refused at another port each time'],
    ['import-of-no-json', 'Feed.import', fn () => ['feed' => 'F'.$number(), 'json' => '{'], 'ImportFailed because of a JsonException'],
    ['import-503', 'Feed.import', fn () => ['feed' => 'F'.$number(), 'way' => '503'], 'the same ImportFailed because of a 503: another cause'],
    ['catalog-closed', 'Stop.now', fn () => ['number' => $number()], "Messenger's own UnrecoverableMessageHandlingException"],
];
$tell = function (string $key, string $expect, string $why) use ($release): void {
    $line = ['key' => $key, 'expect' => $expect, 'why' => $why, 'release' => $release, 'arguable' => ''];
    file_put_contents(getenv('SENT'), json_encode($line, \JSON_UNESCAPED_UNICODE)."\n", \FILE_APPEND);
};
foreach ($receivers as $queue => $transport) {
    $transport->setup();
    if (!isset($failures[$queue])) {
        continue;
    }
    $failures[$queue]->setup();
    foreach ($cases as [$name, $type, $make, $why]) {
        if ('prices' === $queue && !in_array($name, ['sku-missing-when-pricing', 'article-twice', 'article-without-name', 'feed-503', 'import-503', 'import-of-no-json'], true)) {
            continue;
        }
        for ($n = 0; $n < 3 - $release; ++$n) {
            $key = bin2hex(random_bytes(12));
            $tell($key, "$queue/$name", $why);
            $class = 'prices' === $queue ? ImportPrices::class : UpdateCatalog::class;
            $transport->send(new Envelope(new $class($key, $type, $make())));
        }
    }
}
$factory = new \AMQPConnection(['host' => parse_url(getenv('AMQP_URL'), \PHP_URL_HOST), 'port' => parse_url(getenv('AMQP_URL'), \PHP_URL_PORT),
    'login' => parse_url(getenv('AMQP_URL'), \PHP_URL_USER), 'password' => parse_url(getenv('AMQP_URL'), \PHP_URL_PASS),
    'vhost' => ltrim(parse_url(getenv('AMQP_URL'), \PHP_URL_PATH), '/')]);
$factory->connect();
$exchange = new \AMQPExchange(new \AMQPChannel($factory));
for ($n = 0; $n < 3 - $release; ++$n) {
    foreach ([
        ['no-type', '{"id": 1}', [], 'no type header: Messenger cannot decode it and rejects it; no error on it'],
    ] as [$name, $body, $headers, $why]) {
        $key = bin2hex(random_bytes(12));
        $tell($key, "labels/$name", $why);
        $exchange->publish($body, 'labels', \AMQP_NOPARAM, ['headers' => $headers, 'message_id' => $key]);
    }
}

$handler = new UpdateCatalogHandler();
$bus = new MessageBus([new HandleMessageMiddleware(new HandlersLocator([UpdateCatalog::class => [$handler], ImportPrices::class => [$handler]]))]);
$locator = new class($failures) implements \Psr\Container\ContainerInterface {
    public function __construct(private array $services)
    {
    }

    public function get(string $id): mixed
    {
        return $this->services[$id];
    }

    public function has(string $id): bool
    {
        return isset($this->services[$id]);
    }
};
$dispatcher = new EventDispatcher();
$dispatcher->addSubscriber(new AddErrorDetailsStampListener());
$dispatcher->addSubscriber(new SendFailedMessageToFailureTransportListener($locator));
$worker = new Worker($receivers, $bus, $dispatcher);
while (true) {
    try {
        $worker->run(['sleep' => 100000]);
    } catch (\Throwable $error) {
        fwrite(\STDERR, get_class($error).': '.$error->getMessage()."\n"); // it cannot decode one: a supervisor starts it again
        $worker = new Worker($receivers, $bus, $dispatcher);
    }
}
