// Driver of kafkajs that logs in, writes a record and reads it back: `round_trip`, in line_protocol.py's form.

'use strict'

const { Kafka, logLevel } = require('kafkajs')
const { serve } = require('./line_protocol.js')

const PATIENCE_MS = 30000

function connected({ sasl, ...settings }) {
  const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 20 }
  const given = { ...settings, logLevel: logLevel.NOTHING, retry }
  if (sasl && sasl.mechanism === 'oauthbearer') {
    given.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: sasl.token }) }
  } else if (sasl) {
    given.sasl = sasl
  }
  return new Kafka(given)
}

async function roundTrip({ settings, topic, group, value }) {
  const kafka = connected(settings)
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value }] })
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 50 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const read = await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error('no record')), PATIENCE_MS).unref()
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) })
  })
  await consumer.disconnect()
  return read
}

serve({ round_trip: roundTrip })
