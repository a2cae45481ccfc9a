'use strict';
const axios = require('axios');

const GATEWAY = process.env.GATEWAY;

class PaymentError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = 'PaymentError';
  }
}

async function charge(payment) {
  const answer = await axios.post(`${GATEWAY}/${payment.way}/charges/${payment.id}`, {}, { timeout: 300 });
  return answer.data;
}

async function refund(payment) {
  const answer = await axios.post(`${GATEWAY}/${payment.way}/refunds/${payment.id}`, {}, { timeout: 300 });
  return answer.data;
}

async function balance(payment) {
  const answer = await axios.get(`http://127.0.0.1:${payment.port}/balance`);
  return answer.data;
}

async function notify(payment) {
  const answer = await fetch(`http://127.0.0.1:${payment.port}/notify/${payment.id}`);
  return answer.json();
}

async function wait(payment) {
  const answer = await fetch(`${GATEWAY}/slow/${payment.id}`, { signal: AbortSignal.timeout(payment.ms) });
  return answer.status;
}

async function settle(payment) {
  try {
    if (payment.port) await balance(payment);
    else payment.tokens.get(payment.id);
  } catch (error) {
    throw new PaymentError(`could not settle payment ${payment.id}`, { cause: error });
  }
}

async function anyOf(payment) {
  return Promise.any(payment.ports.map((port) => balance({ port })));
}

module.exports = { anyOf, balance, charge, notify, refund, settle, wait };
