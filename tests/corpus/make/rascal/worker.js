'use strict';
// Rascal: a failed message goes by its `republish` and `forward` strategies, with Rascal's own headers.
const { BrokerAsPromised } = require('rascal');
const { HANDLERS, instances } = require('./cases');

const NAMES = [
  'customer-missing-when-pricing', 'line-missing-when-pricing', 'out-of-stock', 'total-invalid', 'email-invalid',
  'label-not-there', 'gateway-503-charging', 'gateway-404-charging', 'gateway-slow-charging', 'balance-refused',
  'notify-refused', 'address-unknown', 'not-balanced', 'tree-in-a-circle', 'metadata-truncated',
];
const config = {
  vhosts: {
    '/corpus': {
      connection: { url: process.env.AMQP_URL },
      queues: {
        'depot.orders': { options: { arguments: { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'depot.dead' } } },
        'depot.returns': {},
        'depot.dead': {},
        'depot.errors': {},
      },
      publications: { orders: { queue: 'depot.orders' }, returns: { queue: 'depot.returns' }, errors: { queue: 'depot.errors' } },
      subscriptions: { orders: { queue: 'depot.orders', prefetch: 5 }, returns: { queue: 'depot.returns', prefetch: 5 } },
    },
  },
};
const STRATEGIES = {
  orders: [{ strategy: 'republish', immediateNack: true }],
  returns: [{ strategy: 'republish', attempts: 2 }, { strategy: 'forward', publication: 'errors' }, { strategy: 'nack' }],
};

async function onMessage(name, content, ackOrNack) {
  try {
    await HANDLERS[content.type](content.data);
    ackOrNack();
  } catch (error) {
    ackOrNack(error instanceof Error ? error : new Error(String(error)), STRATEGIES[name]);
  }
}

async function main() {
  const broker = await BrokerAsPromised.create(config);
  broker.on('error', console.error);
  for (const name of ['orders', 'returns']) {
    const subscription = await broker.subscribe(name);
    subscription.on('message', (message, content, ackOrNack) => onMessage(name, content, ackOrNack)).on('error', console.error);
  }
  for (const [name, names] of [['orders', NAMES], ['returns', ['out-of-stock', 'balance-refused', 'gateway-503-charging']]]) {
    for (const one of instances(`depot.${name}`, names)) {
      const publication = await broker.publish(name, { type: one.type, data: one.data }, { options: { messageId: one.key } });
      publication.on('error', console.error);
    }
  }
}

main().catch((error) => { console.error(error); process.exit(1); });
