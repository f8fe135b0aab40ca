// One message with all that is known of it.

import { blobAt, download } from '../api.js'
import { copyTo } from '../copying.js'
import { fill, h } from '../dom.js'
import { bytesOf, counted, hexdump, localTime, number, time, visible, visibleLines } from '../format.js'
import { jsonTree } from '../json.js'
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
      part('Key', found.key, `${address}/key`, `${topic}-${row.partition}-${row.offset}.key`, found.decoded.key),
      part('Value', found.value, `${address}/value`, `${topic}-${row.partition}-${row.offset}.value`, found.decoded.value),
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
    h('tbody', {}, rows.map((row) => h('tr', {}, h('th', { scope: 'row', class: 'mono' }, visible(row.name)), h('td', { class: 'mono' }, row.size === null ? h('span', { class: 'dim' }, 'null') : asText(row) ?? `0x${digits(bytesOf(row.base64))}`)))),
  )
}

/** The text of a part with nothing invisible, or null. */
function asText(part, lines = false) {
  const text = textOf(bytesOf(part.base64))
  return text === null ? null : lines ? visibleLines(text) : visible(text)
}

/**
 * The key or value as text, JSON or hexadecimal digits.
 * @param {string} title @param {{base64: string, size: number}|null} data  @param {string} address  of all its bytes @param {string} file
 * @param {string|null} decoded  JSON, by a schema registry
 */
function part(title, data, address, file, decoded) {
  if (data === null) return h('p', {}, h('span', { class: 'strong' }, title), ' ', h('span', { class: 'dim' }, title === 'Value' ? 'null: a tombstone' : 'null'))
  const isCut = data.size * 4 > (data.base64.length + 3) * 3 + 8
  const raw = bytesOf(data.base64)
  let text = asText(data, true)
  if (text === null && isCut) text = asText({ base64: btoa(String.fromCharCode(...raw.subarray(0, raw.length - 3))) }, true)
  const json = text === null || isCut ? null : jsonTree(new TextDecoder().decode(raw))
  const lines = (content) => h('pre', { tabindex: 0, 'aria-label': title }, content)
  const tree = decoded === null ? null : jsonTree(decoded)
  const forms = [
    ['Decoded', decoded === null ? null : tree ? h('div', { class: 'json', role: 'group', tabindex: 0, 'aria-label': title }, tree) : lines(visibleLines(decoded))],
    ['JSON', json && h('div', { class: 'json', role: 'group', tabindex: 0, 'aria-label': title }, json)],
    ['Text', text === null ? null : lines(text)],
    ['Hex', lines(hexdump(raw))],
  ].filter(([, content]) => content !== null)
  const content = h('div', {})
  const said = h('span', { class: 'secondary', role: 'status' })
  const buttons = forms.map(([name, form]) => h('button', { type: 'button', onclick: () => choose(name, form) }, name))
  const choose = (name, form) => {
    fill(content, form)
    for (const button of buttons) button.setAttribute('aria-pressed', button.textContent === name ? 'true' : 'false')
  }
  choose(forms[0][0], forms[0][1])
  return h(
    'div',
    {},
    h(
      'div',
      { class: 'toolbar' },
      h('span', { class: 'strong' }, title),
      h('span', { class: 'secondary' }, `${counted(data.size, 'byte')}${isCut ? `, the first ${number(raw.length)} here` : ''}`),
      h('div', { class: 'segments' }, buttons),
      h('button', { type: 'button', class: 'button', onclick: () => copy() }, 'Copy'),
      h('button', { type: 'button', class: 'button', onclick: () => download(address, file) }, 'Download'),
      said,
    ),
    content,
  )

  /** Copies all of it: as it is if it is text, else as the digits that a search takes. */
  async function copy() {
    try {
      const all = isCut ? new Uint8Array(await (await blobAt(address)).arrayBuffer()) : raw
      await copyTo(said, textOf(all) ?? `0x${digits(all)}`, counted(all.length, 'byte'))
    } catch (error) {
      fill(said, problem(error))
    }
  }
}

/** @param {Uint8Array} data */
const digits = (data) => [...data].map((each) => each.toString(16).padStart(2, '0')).join('')

/** Text if it is UTF-8, else null. @param {Uint8Array} data */
function textOf(data) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data)
  } catch {
    return null
  }
}
