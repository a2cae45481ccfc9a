'use strict';
const fs = require('node:fs/promises');
const assert = require('node:assert');
const { z } = require('zod');

class OutOfStockError extends Error {
  constructor(sku, left) {
    super(`article ${sku} is out of stock (${left} left)`);
    this.name = 'OutOfStockError';
    this.code = 'OUT_OF_STOCK';
  }
}

const Order = z.object({ number: z.number().int(), total: z.number().positive(), email: z.email() });

function priceOf(order) {
  const tax = order.customer.tax;
  return order.line.price * tax;
}

function weightOf(order) {
  return order.lines.map((line) => line.article.price).length;
}

function reserve(order) {
  if (order.left < order.wanted) throw new OutOfStockError(order.sku, order.left);
}

function check(order) {
  return Order.parse(order);
}

function metadataOf(order) {
  return JSON.parse(order.metadata);
}

function pathOf(tree, name) {
  return [...pathOf(tree, tree.parents[name || tree.name]), name];
}

async function labelOf(order) {
  return fs.readFile(`/srv/labels/${order.file}.pdf`);
}

async function invoiceOf(order) {
  const file = await fs.readFile(`/srv/invoices/${order.file}.pdf`);
  return file.length;
}

function balanced(order) {
  assert.deepStrictEqual({ paid: order.paid }, { paid: order.total });
}

function address(order) {
  throw new Error(`Lieferadresse «${order.street}, ${order.city}» ist unbekannt`);
}

function cancel(order) {
  throw order.reason;
}

function close(order) {
  if (!order.closed) throw new Error();
}

function reopen(order) {
  if (order.closed) throw new Error();
}

module.exports = {
  address, balanced, cancel, check, close, invoiceOf, labelOf, metadataOf, pathOf, priceOf, reopen, reserve, weightOf,
};
