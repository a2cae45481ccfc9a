'use strict';
// Moleculer channels: their dead-letter queue gets the message with the names of channel and group, never the error.
const { ServiceBroker } = require('moleculer');
const { Middleware } = require('@moleculer/channels');
const fs = require('node:fs');
const { randomUUID } = require('node:crypto');

const release = Number(process.env.RELEASE);
const broker = new ServiceBroker({
  logger: false,
  middlewares: [Middleware({ adapter: { type: 'AMQP', options: { amqp: { url: process.env.AMQP_URL } } } })],
});
const deadLettering = { enabled: true, queueName: 'fleet.dead' };
broker.createService({
  name: 'fleet',
  channels: {
    'truck.moved': { group: 'maps', maxRetries: 1, deadLettering, handler({ position }) { return position.latitude; } },
    'truck.fuelled': { group: 'costs', maxRetries: 2, deadLettering, handler() { throw new Error('no card'); } },
  },
});

async function main() {
  await broker.start();
  for (const [channel, group, why] of [
    ['truck.moved', 'maps', 'no error on it: channel and group are all there is'],
    ['truck.fuelled', 'costs', 'another channel and group'],
  ]) {
    for (let n = 0; n < 3 - release; n += 1) {
      const key = randomUUID();
      fs.appendFileSync(process.env.SENT, `${JSON.stringify({ key, expect: `${group}.${channel}/failed`, why, release })}\n`);
      await broker.sendToChannel(channel, { key, truck: n });
    }
  }
}

main();
