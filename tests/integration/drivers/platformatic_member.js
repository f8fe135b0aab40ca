// Driver of one member of a group, as group_member.py is, of @platformatic/kafka: BOOTSTRAP GROUP TOPIC SETTINGS-AS-JSON.
//
// A member that is asked to seek reads on from there in a stream of its own, which is how this library does it.

'use strict'

const { join } = require('node:path')
const { pathToFileURL } = require('node:url')
const { serve, describe } = require('./line_protocol.js')

const [bootstrap, groupId, topic, settingsText] = process.argv.slice(2)
const settings = JSON.parse(settingsText)
const library = join(process.env.NODE_PATH, '@platformatic/kafka/dist/index.js') // modules are not looked for in NODE_PATH
const read = []
const positions = new Map()
let consumer, producer, stream
let failure = null

async function follow(options) {
  stream = await consumer.consume({ topics: [topic], autocommit: false, ...options })
  stream.on('error', error => { failure = describe(error) })
  stream.on('data', ({ partition, offset, value }) => {
    read.push([partition, Number(offset), value])
    positions.set(partition, { topic, partition, offset: offset + 1n, leaderEpoch: -1 })
  })
}

async function start() {
  const { Consumer, Producer, stringDeserializers, stringSerializers } = await import(pathToFileURL(library))
  const client = { clientId: 'platformatic', bootstrapBrokers: [bootstrap] }
  producer = new Producer({ ...client, serializers: stringSerializers })
  consumer = new Consumer({
    ...client,
    groupId,
    deserializers: stringDeserializers,
    sessionTimeout: settings.session_timeout_ms ?? 3000,
    rebalanceTimeout: 10000,
    heartbeatInterval: 200,
    maxWaitTime: 50,
  })
  await follow({ mode: 'committed', fallbackMode: 'earliest' })
}

const started = start().catch(error => { failure = describe(error) })

function assignment() {
  return (consumer?.assignments ?? []).flatMap(each => each.partitions).sort((a, b) => a - b)
}

serve({
  assignment,
  failure: () => failure,
  records: () => read,
  commit: () => consumer.commit({ offsets: assignment().filter(each => positions.has(each)).map(each => positions.get(each)) }),
  committed: async ({ partition }) => {
    const found = await consumer.listCommittedOffsets({ topics: [{ topic, partitions: [partition] }] })
    const offset = Number(found.get(topic)[partition])
    return offset < 0 ? null : offset
  },
  produce: async ({ partition, value }) => {
    const { offsets } = await producer.send({ messages: [{ topic, partition, value }] })
    return Number(offsets[0].offset)
  },
  seek: async ({ partition, offset }) => {
    await stream.close()
    const offsets = assignment().map(each => ({ topic, partition: each, offset: positions.get(each)?.offset ?? 0n }))
    offsets.find(each => each.partition === partition).offset = BigInt(offset)
    await follow({ mode: 'manual', offsets })
  },
  close: async () => {
    await started
    await stream.close()
    await Promise.all([consumer.close(), producer.close()])
  },
})
