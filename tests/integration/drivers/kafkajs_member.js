// Driver of one member of a group, as group_member.py is, of kafkajs: BOOTSTRAP GROUP TOPIC SETTINGS-AS-JSON.
//
// kafkajs has one assignor of its own, no static members, and tells of no partitions that were taken from it.

'use strict'

const { Kafka, logLevel } = require('kafkajs')
const { serve, describe } = require('./line_protocol.js')

const [bootstrap, groupId, topic, settingsText] = process.argv.slice(2)
const settings = JSON.parse(settingsText)
const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 },
})
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: settings.session_timeout_ms ?? 3000,
  rebalanceTimeout: 10000,
  heartbeatInterval: 200,
  maxWaitTimeInMs: 50,
})
const admin = kafka.admin()
const read = []
const positions = new Map()
let assigned = []
let failure = null

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  assigned = Object.values(payload.memberAssignment).flat().sort((a, b) => a - b)
})
consumer.on(consumer.events.REBALANCING, () => { assigned = [] })
consumer.on(consumer.events.CRASH, ({ payload }) => {
  if (!payload.restart) failure = describe(payload.error)
})

async function join() {
  await Promise.all([consumer.connect(), admin.connect()])
  const subscribed = topic.startsWith('^') ? new RegExp(topic) : topic
  await consumer.subscribe({ topics: [subscribed], fromBeginning: settings.auto_offset_reset !== 'latest' })
  await consumer.run({
    autoCommit: settings.enable_auto_commit ?? false,
    autoCommitInterval: settings.auto_commit_interval_ms,
    eachMessage: async ({ topic: name, partition, message }) => {
      read.push([partition, Number(message.offset), message.value.toString()])
      positions.set(partition, { topic: name, partition, offset: String(BigInt(message.offset) + 1n) })
    },
  })
}

async function committed({ partition }) {
  const [found] = await admin.fetchOffsets({ groupId, topics: [topic] })
  const offset = Number(found.partitions.find(row => row.partition === partition)?.offset ?? -1)
  return offset < 0 ? null : offset
}

const joined = join().catch(error => { failure = describe(error) })

serve({
  assignment: () => assigned,
  failure: () => failure,
  records: () => read,
  commit: () => consumer.commitOffsets(assigned.filter(each => positions.has(each)).map(each => positions.get(each))),
  committed,
  close: async () => {
    await joined
    await consumer.disconnect()
    assigned = []
  },
})
