<?php

namespace App\Catalog;

class ArticleMissing extends \DomainException
{
}

class ImportFailed extends \RuntimeException
{
}

class Pricing
{
    public function rate(string $currency): float
    {
        return ['EUR' => 1.0, 'USD' => 0.92][$currency];
    }

    public function price(array $data): float
    {
        return $data['price'] * $this->rate($data['currency']);
    }

    public function skuOf(array $data): string
    {
        return strtoupper($data['line']['sku']);
    }

    public function share(array $data): int
    {
        return intdiv($data['saved'], $data['total']);
    }
}

class Shelf
{
    public function skuOn(array $data): string
    {
        return $data['line']['sku'];
    }

    public function find(array $data): void
    {
        throw new ArticleMissing(sprintf('article %s not found in "%s"', $data['sku'], $data['shelf']));
    }

    public function owner(array $data): string
    {
        return $data['owner']?->getName() ?? $this->keeper($data)->getName();
    }

    public function keeper(array $data): ?object
    {
        return null;
    }

    public function check(array $data): void
    {
        if (!$data['open']) {
            throw new \LogicException();
        }
    }

    public function describe(array $data): void
    {
        throw new \InvalidArgumentException("Größe «{$data['size']}» ist unbekannt: {$data['name']}");
    }
}

class Store
{
    private \PDO $pdo;

    public function __construct()
    {
        $this->pdo = new \PDO('sqlite::memory:');
        $this->pdo->exec('CREATE TABLE articles (id INTEGER PRIMARY KEY, name TEXT NOT NULL)');
        $this->pdo->exec("INSERT INTO articles VALUES (1001, 'lamp')");
    }

    public function insert(array $data): void
    {
        $this->pdo->prepare('INSERT INTO articles VALUES (?, ?)')->execute([$data['number'], $data['name']]);
    }

    public function select(array $data): void
    {
        $this->pdo->query("SELECT id FROM articles_{$data['year']} WHERE id = {$data['number']}");
    }
}

class Feed
{
    public function decode(array $data): array
    {
        return json_decode($data['json'], true, 512, \JSON_THROW_ON_ERROR);
    }

    public function fetch(array $data): string
    {
        return file_get_contents(getenv('GATEWAY')."/{$data['way']}/feeds/{$data['feed']}");
    }

    public function ping(array $data): string
    {
        return file_get_contents("http://127.0.0.1:{$data['port']}/ping");
    }

    public function import(array $data): void
    {
        try {
            isset($data['json']) ? $this->decode($data) : $this->fetch($data);
        } catch (\Throwable $error) {
            throw new ImportFailed("import {$data['feed']} failed", 42, $error);
        }
    }
}
