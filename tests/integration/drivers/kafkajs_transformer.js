// See transformer.py, of kafkajs: BOOTSTRAP GROUP SOURCE TARGET TRANSACTIONAL-ID SETTINGS-AS-JSON.
//
// kafkajs does not say with the offsets which member of the group it is, so there may be only one of these in a
// group. Whatever fails ends it.

'use strict'

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, source, target, transactionalId, settingsText] = process.argv.slice(2)
const most = JSON.parse(settingsText).records_per_transaction
const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 40 }
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })
const producer = kafka.producer({ transactionalId, transactionTimeout: 10000, idempotent: true, maxInFlightRequests: 1 })
const consumer = kafka.consumer({ groupId, sessionTimeout: 3000, heartbeatInterval: 200, maxWaitTimeInMs: 100 })

async function transact(partition, messages) {
  const offset = String(BigInt(messages.at(-1).offset) + 1n)
  const transaction = await producer.transaction()
  await transaction.send({
    topic: target,
    messages: messages.map(({ key, value }) => ({ key, value, partition })),
  })
  await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition, offset }] }] })
  await transaction.commit()
}

async function main() {
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      for (let first = 0; first < batch.messages.length; first += most) {
        if (!isRunning() || isStale()) return
        const messages = batch.messages.slice(first, first + most)
        await transact(batch.partition, messages).catch(end)
        resolveOffset(messages.at(-1).offset)
        await heartbeat()
      }
    },
  })
}

function end(error) {
  console.error(error)
  process.exit(1)
}

process.on('unhandledRejection', end)
main().catch(end)
