/**
 * From what the broker answers (`inside.log`, `inside.purgatory`, `inside.exchange`) to what the drawings take.
 *
 * The rule: no element is made here, so each picture can be tested as data.
 */

const BATCHES_SHOWN = 12
const RINGS = 3
const KINDS = { Fetch: 'fetch', Produce: 'produce', Rebalance: 'group', Member: 'group', DeleteRecords: 'produce' }

/** The partition whose log explains a request: the first that was answered with records, else the first named. */
export function partitionOf(explained) {
  const { fetch, produce, group, wait } = explained
  const rows = fetch?.partitions ?? produce?.partitions ?? []
  const row =
    rows.find(({ bytes }) => bytes > 0) ??
    rows.find(({ topic, partition }) => wait?.partition === `${topic}-${partition}`) ??
    rows[0]
  if (row) return { topic: row.topic, partition: row.partition, offset: row.asked_offset ?? row.base_offset, row }
  const offset = group?.offsets?.[0]
  return offset ? { topic: offset[0], partition: offset[1], offset: null, row: null } : null
}

/**
 * The log drawing's view.
 * @param {object} log as `inside.log` has it
 * @param {object|null} row the FETCHED or PRODUCED of the request; null: nothing leaves
 */
export function logView(log, row, { isFetch }) {
  const chosen = Math.max(
    log.segments.findIndex(({ base_offset }) => base_offset === log.segment),
    log.segment === null ? log.segments.length - 1 : 0,
  )
  const segment = log.segments[chosen] ?? { base_offset: 0, name: '', size_bytes: 0, entries: 0, is_active: true }
  const entry = log.index.find(([, , number]) => number === log.entry)
  const batches = log.batches.map((batch) => ({
    baseOffset: batch.base_offset,
    lastOffset: batch.last_offset,
    position: batch.position,
    sizeBytes: batch.bytes,
    state: stateOf(batch, log, row),
  }))
  return {
    isFetch,
    headersLookedAt: row?.index?.headers_looked_at ?? null,
    segments: log.segments.map((one) => ({
      baseOffset: one.base_offset,
      sizeBytes: one.size_bytes,
      isActive: one.is_active,
    })),
    logStartOffset: log.log_start_offset,
    logStartShare: shareBelowStart(log),
    chosen,
    segment: {
      file: segment.name,
      sizeBytes: segment.size_bytes,
      entryCount: segment.entries,
      intervalBytes: log.index_interval_bytes,
      entries: ticks(segment, log),
      entry: entry ? { number: entry[2], position: entry[1] } : null,
    },
    batches: aroundWhatLeaves(batches, log.offset),
    ends: { lso: log.last_stable_offset, hw: log.high_watermark, leo: log.log_end_offset },
  }
}

function stateOf(batch, log, row) {
  const first = row?.base_offset ?? row?.asked_offset ?? null
  if (row?.bytes > 0 && first !== null && batch.last_offset >= first && batch.base_offset <= (row.last_offset ?? -1))
    return 'leaves'
  if (batch.base_offset >= log.high_watermark) return 'uncommitted'
  if (row?.asked_offset !== undefined && batch.last_offset < row.asked_offset) return 'passed'
  return ''
}

/** A dozen batches: what leaves, or else the offset, with those before it, and what comes after. */
function aroundWhatLeaves(batches, offset) {
  if (batches.length <= BATCHES_SHOWN) return batches
  const leaves = batches.findIndex(({ state }) => state === 'leaves')
  const holds = batches.findIndex(({ lastOffset }) => lastOffset >= offset)
  const first = leaves >= 0 ? leaves : holds >= 0 ? holds : batches.length - 1
  const begin = Math.min(Math.max(first - 4, 0), batches.length - BATCHES_SHOWN)
  return batches.slice(begin, begin + BATCHES_SHOWN)
}

/** Of the first segment, by its offsets: how much of it lies below the log start offset. */
function shareBelowStart({ segments, log_start_offset: start, log_end_offset: end }) {
  if (!segments.length) return 0
  const first = segments[0].base_offset
  const next = segments[1]?.base_offset ?? end
  return start > first && next > first ? Math.min((start - first) / (next - first), 1) : 0
}

/** The index entries to draw: the real ones around the offset; others as evenly as their number says. */
function ticks(segment, log) {
  const entries = log.index.map(([, position, number]) => ({ number, position }))
  if (entries.length >= segment.entries || segment.entries < 2) return entries
  const step = segment.size_bytes / (segment.entries + 1)
  const known = new Set(entries.map(({ number }) => number))
  for (let number = 0; number < segment.entries; number++) {
    if (!known.has(number)) entries.push({ number, position: step * (number + 1) })
  }
  return entries.sort((one, other) => one.position - other.position)
}

/** The log panel's sentence, for those who do not see the drawing. */
export function logWords(log, view, name) {
  const leaves = view.batches.filter(({ state }) => state === 'leaves')
  const bytes = leaves.reduce((sum, batch) => sum + batch.sizeBytes, 0)
  const parts = [
    `The log of ${name} has ${log.segments.length} segments and ${log.size_bytes} bytes`,
    `it begins at offset ${log.log_start_offset}, its last stable offset is ${log.last_stable_offset}, its high watermark ${log.high_watermark}, its end ${log.log_end_offset}`,
  ]
  if (view.segment.entry)
    parts.push(`the read begins at index entry ${view.segment.entry.number}, position ${view.segment.entry.position}`)
  if (leaves.length)
    parts.push(`${bytes} bytes leave, from offset ${leaves[0].baseOffset} to ${leaves[leaves.length - 1].lastOffset}`)
  return `${parts.join('; ')}.`
}

/**
 * The wheel drawing's view.
 * @param {object} purgatory as `inside.purgatory` has it
 * @param {object|null} wait of the explained request
 */
export function wheelView(purgatory, wait, name) {
  const slots = []
  const hands = []
  for (let level = 0; level < RINGS; level++) {
    const ring = purgatory.levels.find((one) => one.level === level) ?? { hand: 0, lit: [] }
    hands.push(ring.hand)
    slots.push(new Map(ring.lit.map(([slot, kinds]) => [slot, summed(kinds)])))
  }
  const next = slots.findIndex((lit) => lit.size > 0)
  const isAhead = wait && wait.level < RINGS && wait.slot >= hands[wait.level] - 1
  const words = isAhead ? `${name} ${wait.ended_by ? 'lay' : 'lies'} in ${wait.slot}` : ''
  const selected = isAhead ? { level: wait.level, slot: wait.slot, words } : null
  return {
    waiting: purgatory.pending,
    hands,
    slots,
    selected,
    next: next < 0 ? null : { level: next, slot: Math.min(...slots[next].keys()) },
  }
}

/** All that are due in a slot, in the hue of the most frequent kind. */
function summed(kinds) {
  let count = 0
  let most = ['', 0]
  for (const [kind, number] of Object.entries(kinds)) {
    count += number
    if (number > most[1]) most = [kind, number]
  }
  return { count, kind: KINDS[most[0]] ?? 'other' }
}
