/**
 * "This request": the steps of one request on a line of time, then its partitions, then what it weighed.
 *
 * The rule: the broker explains (`inside.exchange`), this module only sets it. A step whose time was not measured has
 * none; while the request was parked the line is the band that the drawing of requests has.
 */

import { path, withQuery } from '../router.js'
import { partitionName } from '../table.js'
import { exactMs, h, number } from './drawing.js'

const SHOWN = 8
const STAGES = [
  ['request_queue', 'RequestQueue', 'there is no queue: the loop that reads a request serves it'],
  ['local', 'Local', 'the handler, before and after the wait'],
  ['remote', 'Remote', 'parked'],
  ['throttle', 'Throttle', 'held back by a quota'],
  ['response_queue', 'ResponseQueue', 'there is no queue'],
  ['response_send', 'ResponseSend', 'until the socket had taken the last byte'],
]

/** The panel's body for an explained request. @param {object} explained as `inside.exchange` has it */
export function requestBody(explained, { address, nameOfRequest }) {
  return h(
    'div',
    { class: 'request' },
    h('p', { class: 'unit' }, 'ms since it arrived'),
    stepList(explained, address),
    ...[fetchTable(explained.fetch), produceTable(explained.produce), offsetTable(explained.group)].filter(Boolean),
    wokeList(explained.woke ?? [], address, nameOfRequest),
    weights(explained),
    stages(explained.stages_us),
    frames(explained),
  )
}

/** Where both of its frames are, field by field, if the broker records them. */
function frames({ connection, correlation_id: correlation }) {
  const address = withQuery(path('clients', connection), { correlation })
  return h('p', { class: 'secondary frames-link' }, h('a', { href: address }, `Its frames, and all of #${connection}`))
}

/** "Fetch v12, correlation 4711". */
export function requestTitle({ api, version, correlation_id }) {
  return `${api} v${version}, correlation ${correlation_id}`
}

function stepList({ api, steps, wait }, address) {
  return h(
    'ol',
    { class: 'steps' },
    ...steps.map(({ us, kind, title, detail }) => {
      const classes = ['step', `step-${kind.replace(' ', '-')}`]
      if (kind === 'parked') classes.push('band-begins')
      const cause = kind === 'woken' ? wait?.cause : null
      return h(
        'li',
        { class: classes.join(' ') },
        h('span', { class: 'at' }, us === null ? '' : exactMs(us)),
        h('span', { class: 'rail', 'aria-hidden': 'true' }),
        h(
          'div',
          { class: 'words' },
          h('b', {}, title),
          ...detail.map((words) => h('p', {}, ...linked(words, cause, address))),
        ),
      )
    }),
  )
}

/** A detail whose first words are the request that woke this one: these words are a link to it. */
function linked(words, cause, address) {
  const name = cause ? `${cause.api} ${cause.correlation_id}` : ''
  if (!name || !words.startsWith(name)) return [words]
  return [h('a', { href: address(cause) }, name), words.slice(name.length)]
}

function table(name, heads, rows) {
  if (!rows.length) return null
  return h(
    'table',
    { class: 'partitions' },
    h('caption', { class: 'hidden-text' }, name),
    h('thead', {}, h('tr', {}, ...heads.map((words) => h('th', { scope: 'col' }, words)))),
    h('tbody', {}, ...rows.map((cells) => h('tr', {}, ...cells.map((words) => h('td', {}, words))))),
  )
}

function fetchTable(fetch) {
  if (!fetch || !fetch.asked) return null
  const inAnswer = fetch.partitions.filter((row) => row.is_in_answer).slice(0, SHOWN)
  const rows = inAnswer.map((row) => [
    partitionName(row.topic, row.partition),
    row.asked_offset < 0 ? '' : number(row.asked_offset),
    row.error || span(row.base_offset, row.last_offset) || 'nothing',
    number(row.bytes),
  ])
  const answered = fetch.answered - inAnswer.length
  if (answered > 0) rows.push([`${number(answered)} more`, '', 'answered', ''])
  if (fetch.left_out > 0) rows.push([`${number(fetch.left_out)}${rows.length ? ' more' : ''}`, '', 'left out', '0'])
  return table('Partitions', ['partition', 'asked for', 'answered', 'bytes'], rows)
}

function produceTable(produce) {
  if (!produce) return null
  const rows = produce.partitions
    .slice(0, SHOWN)
    .map((row) => [
      partitionName(row.topic, row.partition),
      number(row.records),
      row.error || `${span(row.base_offset, row.last_offset)}${row.is_duplicate ? ', a duplicate' : ''}`,
      number(row.bytes),
    ])
  if (produce.asked > rows.length) rows.push([`${number(produce.asked - rows.length)} more`, '', '', ''])
  return table('Partitions', ['partition', 'records', 'offsets', 'bytes'], rows)
}

function offsetTable(group) {
  if (!group?.offsets?.length) return null
  const rows = group.offsets
    .slice(0, SHOWN)
    .map(([topic, partition, offset, lag]) => [partitionName(topic, partition), '', number(offset), lag < 0 ? '' : number(lag)])
  return table('Committed offsets', ['partition', '', 'committed', 'lag'], rows)
}

function span(first, last) {
  if (first === null || first === undefined || first < 0) return ''
  return first === last ? number(first) : `${number(first)}–${number(last)}`
}

/** The requests whose wait this one has ended. */
function wokeList(woke, address, nameOfRequest) {
  if (!woke.length) return null
  const links = woke.flatMap((seq, index) => [
    index ? ', ' : '',
    h('a', { href: address({ seq }) }, nameOfRequest(seq)),
  ])
  return h('p', { class: 'woke secondary' }, 'It woke ', links)
}

function weights({ bytes_in, bytes_out, throttled_ms, converted_to }) {
  const cells = [
    ['arrived', `${number(bytes_in)} B`],
    ['left', bytes_out < 0 ? 'not yet' : `${number(bytes_out)} B`],
    ['throttled', `${number(throttled_ms)} ms`],
    ['converted', converted_to === null ? 'no' : `to magic ${converted_to}`],
  ]
  return h(
    'dl',
    { class: 'weights' },
    ...cells.map(([name, words]) => h('div', {}, h('dt', {}, name), h('dd', {}, words))),
  )
}

/** Kafka's names for where the time went, folded away. */
function stages(us) {
  if (!us) return null
  return h(
    'details',
    { class: 'stages' },
    h('summary', {}, "As Kafka's metrics split it"),
    h(
      'dl',
      {},
      ...STAGES.map(([key, name, why]) =>
        h('div', { title: why }, h('dt', {}, `${name}TimeMs`), h('dd', {}, us[key] < 0 ? '' : exactMs(us[key]))),
      ),
    ),
  )
}
