'use strict';
// amqplib alone: a consumer that publishes what failed to its error queue, with the error in headers made by hand.
const { randomUUID } = require('node:crypto');
const os = require('node:os');
const amqp = require('amqplib');
const { HANDLERS, instances, release, sent } = require('./cases');

const QUEUES = ['webshop.orders', 'webshop.imports'];

async function onMessage(channel, queue, message) {
  try {
    const { type, data } = JSON.parse(message.content.toString());
    await HANDLERS[type](data);
    channel.ack(message);
  } catch (error) {
    channel.sendToQueue('webshop.errors', message.content, {
      ...message.properties,
      headers: {
        ...message.properties.headers,
        'x-original-queue': queue,
        'x-error-name': error.name,
        'x-error-message': error.message ?? String(error),
        'x-error-code': error.code,
        'x-error-stack': error.stack,
        'x-error-cause': error.cause?.stack,
        'x-error-errors': error.errors && Array.isArray(error.errors) ? error.errors.map(String) : undefined,
        'x-failed-at': new Date().toISOString(),
        'x-host': `${os.hostname()}-${process.pid}`,
      },
    });
    channel.ack(message);
  }
}

async function main() {
  const connection = await amqp.connect(process.env.AMQP_URL);
  const channel = await connection.createChannel();
  await channel.assertQueue('webshop.errors', { durable: true });
  for (const queue of QUEUES) {
    await channel.assertQueue(queue, { durable: true });
    await channel.consume(queue, (message) => onMessage(channel, queue, message));
  }
  for (const one of instances('webshop.orders')) {
    channel.sendToQueue('webshop.orders', Buffer.from(JSON.stringify({ type: one.type, data: one.data })), { messageId: one.key });
  }
  for (const one of instances('webshop.imports', ['out-of-stock', 'metadata-html'])) {
    channel.sendToQueue('webshop.imports', Buffer.from(JSON.stringify({ type: one.type, data: one.data })), { messageId: one.key });
  }
  for (let n = 0; n < 3 - release; n += 1) {
    const unread = randomUUID();
    sent(unread, 'webshop.imports/body-no-json', 'a body that is no JSON: JSON.parse in the consumer itself');
    channel.sendToQueue('webshop.imports', Buffer.from(`number=${release}${n}&total=3`), { messageId: unread });
    const unknown = randomUUID();
    sent(unknown, 'webshop.imports/type-unknown', 'HANDLERS[type] is not a function: a message nobody handles');
    channel.sendToQueue('webshop.imports', Buffer.from(JSON.stringify({ type: `order.${n}`, data: {} })), { messageId: unknown });
  }
}

main();
