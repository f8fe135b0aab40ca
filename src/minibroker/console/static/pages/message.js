// One message with all that is known of it.

import { download } from '../api.js'
import { fill, h } from '../dom.js'
import { bytesOf, counted, hexdump, localTime, number, prettyJson, time, visible, visibleLines } from '../format.js'
import { path, withQuery } from '../router.js'
import { problem } from '../view.js'
import { produceTo } from './produce.js'

const NONE = -1

/**
 * @param {import('../view.js').View} view
 * @param {string} topic
 * @param {{partition: number, offset: number}} row
 * @param {Element} place
 */
export async function showMessage(view, topic, row, place) {
  const address = path('api', 'topics', topic, 'messages', row.partition, row.offset)
  fill(place, h('p', { class: 'secondary' }, 'reading …'))
  let found
  try {
    found = await view.get(address)
  } catch (error) {
    if (!view.signal.aborted) fill(place, problem(error))
    return
  }
  const link = withQuery(path('topics', topic, 'messages'), { partition: row.partition, at: row.offset, open: `${row.partition}:${row.offset}` })
  const again = view.forChanges(h('button', { type: 'button', class: 'button', onclick: () => produceTo(topic, null, found, () => {}) }, 'Produce again'))
  fill(
    place,
    h(
      'div',
      { class: 'message' },
      facts(found),
      found.headers.length > 0 && headers(found.headers),
      part('Key', found.key, () => download(`${address}/key`, `${topic}-${row.partition}-${row.offset}.key`)),
      part('Value', found.value, () => download(`${address}/value`, `${topic}-${row.partition}-${row.offset}.value`)),
      h(
        'div',
        { class: 'toolbar' },
        again,
        h('a', { class: 'button', href: link }, 'Link to this message'),
        view.cluster?.control && h('a', { class: 'button', href: withQuery(path('topics', topic, 'log'), { partition: row.partition, offset: row.offset }) }, 'Where in the log'),
      ),
    ),
  )
}

function facts(found) {
  const { batch } = found
  const rows = [
    ['time', `${time(found.timestamp)} UTC`, localTime(found.timestamp)],
    ['set by', batch.timestamp_type === 'LOG_APPEND_TIME' ? 'the broker' : batch.magic === 0 ? 'not set: this format has no time' : 'the producer'],
    ['batch', batch.base_offset === batch.last_offset ? number(batch.base_offset) : `${number(batch.base_offset)}–${number(batch.last_offset)}`],
    ['size of the batch', `${number(batch.size)} B`],
    ['codec', batch.codec.toLowerCase()],
    ['format', `magic ${batch.magic}`],
  ]
  if (batch.magic >= 2) {
    rows.push(['leader epoch', number(batch.partition_leader_epoch)])
    if (batch.producer_id !== NONE) {
      rows.push(['producer', `${batch.producer_id}, epoch ${batch.producer_epoch}`])
      rows.push(['sequence', number(found.sequence)])
    }
    rows.push(['transaction', batch.is_transactional ? 'part of one' : 'none'])
  }
  return h('dl', { class: 'facts' }, rows.map(([name, value, title]) => h('div', {}, h('dt', {}, name), h('dd', { title: title ?? null }, value))))
}

function headers(rows) {
  return h(
    'table',
    { 'aria-label': 'Headers', class: 'small' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'header'), h('th', { scope: 'col' }, 'value'))),
    h('tbody', {}, rows.map((row) => h('tr', {}, h('th', { scope: 'row', class: 'mono' }, visible(row.name)), h('td', { class: 'mono' }, row.size === null ? h('span', { class: 'dim' }, 'null') : asText(row) ?? `0x${[...bytesOf(row.base64)].map((each) => each.toString(16).padStart(2, '0')).join('')}`)))),
  )
}

/** Text if it is UTF-8, else null. */
function asText(part, lines = false) {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytesOf(part.base64))
    return lines ? visibleLines(text) : visible(text)
  } catch {
    return null
  }
}

/** The key or value as text, JSON or hexadecimal digits. */
function part(title, data, save) {
  if (data === null) return h('p', {}, h('span', { class: 'strong' }, title), ' ', h('span', { class: 'dim' }, title === 'Value' ? 'null: a tombstone' : 'null'))
  const isCut = data.size * 4 > (data.base64.length + 3) * 3 + 8
  const raw = bytesOf(data.base64)
  let text = asText(data, true)
  if (text === null && isCut) text = asText({ base64: btoa(String.fromCharCode(...raw.subarray(0, raw.length - 3))) }, true)
  const json = text === null || isCut ? null : prettyJson(new TextDecoder().decode(raw))
  const forms = [
    ['JSON', json === null ? null : visibleLines(json)],
    ['Text', text],
    ['Hex', hexdump(raw)],
  ].filter(([, content]) => content !== null)
  const content = h('pre', { tabindex: 0, 'aria-label': title })
  const buttons = forms.map(([name, value]) => h('button', { type: 'button', onclick: () => choose(name, value) }, name))
  const choose = (name, value) => {
    fill(content, value)
    for (const button of buttons) button.setAttribute('aria-pressed', button.textContent === name ? 'true' : 'false')
  }
  const structured = json !== null && /^\s*[[{]/.test(json)
  const [first] = structured || text === null ? forms : forms.filter(([name]) => name !== 'JSON')
  choose(first[0], first[1])
  return h(
    'div',
    {},
    h(
      'div',
      { class: 'toolbar' },
      h('span', { class: 'strong' }, title),
      h('span', { class: 'secondary' }, `${counted(data.size, 'byte')}${isCut ? `, the first ${number(raw.length)} here` : ''}`),
      h('div', { class: 'segments' }, buttons),
      h('button', { type: 'button', class: 'button', onclick: () => save() }, 'Download'),
    ),
    content,
  )
}
