/**
 * The exchanges that a page has seen: a request with its response, or a request that the broker has in hand.
 *
 * The rule: one row of the stream becomes one object here. The stream names the fields of its rows. Times are
 * microseconds of the broker's machine; null is what has not happened, or does not exist.
 */

const KEPT = 20_000
/** An exchange in hand that two events in a row leave out has ended unseen. */
const EVENTS_MISSED = 2

/** API names by the hue of their bars; the rest is "other". */
const GROUP_APIS = new Set([
  ...['FindCoordinator', 'JoinGroup', 'SyncGroup', 'Heartbeat', 'LeaveGroup', 'OffsetCommit', 'OffsetFetch'],
  ...['ListGroups', 'DescribeGroups', 'DeleteGroups', 'OffsetDelete', 'InitProducerId', 'AddPartitionsToTxn'],
  ...['AddOffsetsToTxn', 'EndTxn', 'WriteTxnMarkers', 'TxnOffsetCommit'],
])

/** "fetch", "produce", "group" or "other". */
export function kindOf(api) {
  if (api === 'Fetch') return 'fetch'
  if (api === 'Produce') return 'produce'
  return GROUP_APIS.has(api) ? 'group' : 'other'
}

/** An event's rows as objects: its exchanges, and what is in hand. */
export function decoded({ fields, exchanges, waiting }) {
  const row = (values) => exchangeOf(Object.fromEntries(fields.map((name, place) => [name, values[place]])))
  return { exchanges: exchanges.map(row), waiting: waiting.map(row) }
}

function exchangeOf(row) {
  const { seq, connection, client, api, version, correlation, outcome, error, topics, records, woke } = row
  const { arrived: arrivedUs, handled, woken, answered, sent, max_wait: maxWait } = row
  const at = (us) => (us < 0 ? null : arrivedUs + us)
  const isOpen = outcome === 'waits' || outcome === 'sending'
  const hasWaited = woken >= 0 || outcome === 'waits' || outcome === 'expired' || outcome === 'woken'
  const last = [sent, answered, woken, handled].find((us) => us >= 0) ?? 0
  return {
    ...{ seq, connection, client, api, version, correlation, arrivedUs, outcome, error, topics, records, isOpen },
    kind: kindOf(api),
    handledUs: at(handled),
    parkedUs: hasWaited ? (at(handled) ?? arrivedUs) : null,
    wokenUs: at(woken),
    answeredUs: at(answered),
    sentUs: at(sent),
    endUs: isOpen ? Infinity : arrivedUs + last,
    bytesIn: row.bytes_in,
    bytesOut: row.bytes_out < 0 ? null : row.bytes_out,
    case: row.case,
    isWoken: row.woken_by >= 0 || row.case !== '',
    isExpired: outcome === 'expired',
    wokenBy: row.woken_by < 0 ? null : row.woken_by,
    maxWaitMs: maxWait < 0 ? null : Math.round(maxWait / 1000),
    woke: woke ?? [],
    hasWoken: (woke ?? []).length > 0,
  }
}

/** The latest exchanges of one broker process, finished and in hand. */
export class ExchangeStore {
  constructor() {
    this.forget()
  }

  /** Begin anew, as after a start of the broker. */
  forget() {
    this.bySeq = new Map()
    this.open = new Map()
    this.finished = []
    this.connections = new Map()
  }

  /** Take an event of the stream. */
  take(event) {
    const { exchanges, waiting } = decoded(event)
    for (const exchange of exchanges) this.finish(exchange)
    const stillOpen = new Map()
    for (const exchange of waiting) {
      if (this.bySeq.has(exchange.seq) && !this.open.has(exchange.seq)) continue
      stillOpen.set(exchange.seq, { exchange, missed: 0 })
      this.bySeq.set(exchange.seq, exchange)
      this.seen(exchange)
    }
    for (const [seq, { exchange, missed }] of this.open) {
      if (stillOpen.has(seq) || !this.bySeq.get(seq)?.isOpen) continue
      if (missed + 1 < EVENTS_MISSED) stillOpen.set(seq, { exchange, missed: missed + 1 })
      else this.bySeq.delete(seq)
    }
    this.open = stillOpen
    for (const [number, address] of Object.entries(event.connections)) {
      const known = this.connections.get(Number(number))
      if (known) known.address = address
    }
    this.drop()
  }

  finish(exchange) {
    const before = this.bySeq.get(exchange.seq)
    if (before && !before.isOpen) return
    this.bySeq.set(exchange.seq, exchange)
    this.open.delete(exchange.seq)
    this.finished.push(exchange)
    this.seen(exchange)
  }

  seen({ connection, client, arrivedUs, endUs, isOpen }) {
    const known = this.connections.get(connection) ?? { number: connection, name: '', address: '', lastUs: 0 }
    known.name = client ?? (known.name || '(no client id)')
    known.lastUs = Math.max(known.lastUs, isOpen ? arrivedUs : endUs)
    this.connections.set(connection, known)
  }

  drop() {
    if (this.finished.length <= KEPT * 1.1) return
    for (const { seq } of this.finished.splice(0, this.finished.length - KEPT)) this.bySeq.delete(seq)
  }

  get(seq) {
    return this.bySeq.get(seq) ?? null
  }

  /** Those in hand between two moments, in the order of their arrival; `keep` is a filter. */
  between(fromUs, toUs, keep = () => true) {
    const found = []
    for (let index = this.finished.length - 1; index >= 0; index--) {
      const exchange = this.finished[index]
      // In the order of their end, nearly: a second is enough for those of one pull.
      if (exchange.endUs < fromUs - 1_000_000) break
      if (exchange.endUs >= fromUs && exchange.arrivedUs <= toUs && keep(exchange)) found.push(exchange)
    }
    for (const { exchange } of this.open.values())
      if (exchange.arrivedUs <= toUs && keep(exchange)) found.push(exchange)
    return found.sort((one, other) => one.arrivedUs - other.arrivedUs)
  }
}

/**
 * A filter from its text: words that must all match. `api:fetch`, `topic:orders`, `client:billing`, `connection:7`,
 * `slower:10` (ms), `parked`, `empty`, `failed`, `woken`, `expired`; any other word is a part of a name.
 * @returns {{keep: function(object): boolean, unknown: string[]}} `unknown`: words with a key that does not exist
 */
export function filterOf(text) {
  const tests = []
  const unknown = []
  for (const word of text.trim().toLowerCase().split(/\s+/).filter(Boolean)) {
    const [, key, value] = word.match(/^([a-z_]+):(.*)$/) ?? [null, null, word]
    const test = key === null ? (FLAGS[value] ?? ((exchange) => hasName(exchange, value))) : KEYS[key]?.(value)
    if (test) tests.push(test)
    else unknown.push(word)
  }
  return { keep: (exchange) => tests.every((test) => test(exchange)), unknown }
}

const FLAGS = {
  parked: (exchange) => exchange.parkedUs !== null,
  woken: (exchange) => exchange.isWoken,
  expired: (exchange) => exchange.isExpired,
  failed: (exchange) => Boolean(exchange.error),
  empty: (exchange) => exchange.api === 'Fetch' && !exchange.isOpen && !exchange.records,
}

const KEYS = {
  api: (value) => (exchange) => exchange.api.toLowerCase() === value,
  topic: (value) => (exchange) => exchange.topics.some((topic) => topic.toLowerCase().includes(value)),
  client: (value) => (exchange) => (exchange.client ?? '').toLowerCase().includes(value),
  connection: (value) => (exchange) => String(exchange.connection) === value.replace(/^#/, ''),
  slower: (value) => (exchange) => exchange.endUs - exchange.arrivedUs >= Number.parseFloat(value) * 1000,
}

function hasName({ api, client, error, topics }, part) {
  return [api, client ?? '', error, ...topics].some((name) => name.toLowerCase().includes(part))
}
