'use strict';
// What goes wrong: each case is one cause, so one group; each call of `make` is another instance of it.
const { randomUUID } = require('node:crypto');
const fs = require('node:fs');
const gateway = require('./src/gateway');
const orders = require('./src/orders');

const any = (...values) => values[Math.floor(Math.random() * values.length)];
const number = (least = 1000, most = 899999) => least + Math.floor(Math.random() * (most - least));
const port = () => number(2000, 9000);
const id = () => `pay_${randomUUID().slice(0, 13)}`;
const email = () => `${any('ada', 'bob', 'chen')}${number(1, 99)}@example.org`;

const HANDLERS = { ...orders, ...gateway };
const CASES = [
  ['customer-missing-when-pricing', 'priceOf', () => ({ number: number(), line: { price: number() } }),
    "Cannot read properties of undefined (reading 'tax') in priceOf"],
  ['line-missing-when-pricing', 'priceOf', () => ({ number: number(), customer: { tax: 1.19 } }),
    "the same function reads 'price' of nothing: another field is missing"],
  ['article-missing-when-weighing', 'weightOf', () => ({ number: number(), lines: [{ sku: number() }] }),
    "reading 'price' as well, in weightOf: apart"],
  ['out-of-stock', 'reserve', () => ({ sku: `A-${number()}`, left: number(0, 5), wanted: 10 }), 'an error class of its own with values'],
  ['total-invalid', 'check', () => ({ number: number(), total: any('12,50', 'abc', null), email: email() }),
    'zod: the total, whatever it is instead'],
  ['email-invalid', 'check', () => ({ number: number(), total: 10, email: any('ada', 'bob at example', '@') }),
    'zod: another field of the same schema'],
  ['metadata-html', 'metadataOf', () => ({ metadata: any('<html>502</html>', '<!doctype html><p>busy', '<b>no</b>') }),
    'HTML where JSON should be'],
  ['metadata-truncated', 'metadataOf', () => ({ metadata: `{"code": ${number()}, "list": [1, 2` }), 'JSON that ends too early'],
  ['tree-in-a-circle', 'pathOf', () => ({ name: 'a', parents: { a: 'b', b: 'a' }, number: number() }), 'Maximum call stack size exceeded'],
  ['label-not-there', 'labelOf', () => ({ file: `2026/${randomUUID()}` }), 'ENOENT; a path of its own each time'],
  ['invoice-not-there', 'invoiceOf', () => ({ file: `2026/${randomUUID()}` }), 'ENOENT in another function and folder: apart'],
  ['not-balanced', 'balanced', () => ({ paid: number(), total: number(1, 999) }), 'an AssertionError over several lines'],
  ['address-unknown', 'address', () => ({ street: `${any('Straße', 'ул. Ленина', '通り')} ${number(1, 99)}`, city: any('Köln', '東京') }),
    'a message beyond ASCII'],
  ['text-thrown', 'cancel', () => ({ reason: `order ${number()} was cancelled by the customer` }), 'a string is thrown: no type, no stack'],
  ['not-closed', 'close', () => ({ number: number(), closed: false }), 'an Error without a message'],
  ['closed-already', 'reopen', () => ({ number: number(), closed: true }), 'an Error without a message elsewhere: apart'],
  ['gateway-503-charging', 'charge', () => ({ way: '503', id: id() }), 'axios: 503 to charges'],
  ['gateway-404-charging', 'charge', () => ({ way: '404', id: id() }), 'axios: 404 to charges: another cause'],
  ['gateway-503-refunding', 'refund', () => ({ way: '503', id: id() }), 'axios: 503 to refunds: another function of the application'],
  ['gateway-slow-charging', 'charge', () => ({ way: 'slow', id: id() }), 'axios: no answer in time'],
  ['balance-refused', 'balance', () => ({ port: port() }), 'ECONNREFUSED at another port each time'],
  ['notify-refused', 'notify', () => ({ port: port(), id: id() }), "fetch failed; only the error's cause says why"],
  ['wait-too-long', 'wait', () => ({ id: id(), ms: number(100, 200) }), 'aborted due to timeout'],
  ['settle-refused', 'settle', () => ({ port: port(), id: id() }), 'PaymentError caused by a refused connection'],
  ['settle-without-tokens', 'settle', () => ({ id: id() }), 'the same PaymentError, caused by a TypeError: another cause'],
  ['all-refused', 'anyOf', () => ({ ports: [port(), port()].slice(0, number(1, 3)) }), 'AggregateError: All promises were rejected'],
].map(([name, type, make, why]) => ({ name, type, make, why }));

const release = Number(process.env.RELEASE);

function sent(key, expect, why, arguable = '') {
  fs.appendFileSync(process.env.SENT, `${JSON.stringify({ key, expect, why, release, arguable })}\n`);
}

function instances(queue, names) {
  return CASES.filter((one) => !names || names.includes(one.name)).flatMap((one) =>
    Array.from({ length: 3 - release }, () => {
      const key = randomUUID();
      sent(key, `${queue}/${one.name}`, one.why);
      return { key, type: one.type, data: one.make(), name: one.name };
    }));
}

module.exports = { HANDLERS, instances, release, sent };
