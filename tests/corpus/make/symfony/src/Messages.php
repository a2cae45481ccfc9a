<?php

namespace App\Message;

class UpdateCatalog
{
    public function __construct(public string $id, public string $type, public array $data)
    {
    }
}

class ImportPrices
{
    public function __construct(public string $id, public string $type, public array $data)
    {
    }
}
