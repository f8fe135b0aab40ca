// The form that sends a message: empty, or filled with one that is to be sent again.

import { change, get } from '../api.js'
import { fill, h } from '../dom.js'
import { command, commandRow, option, quoted } from '../commands.js'
import { bytesOf, number, visible } from '../format.js'
import { dialog } from '../keys.js'
import { path, withQuery } from '../router.js'
import { problem } from '../view.js'

/**
 * @param {string} topic
 * @param {number|null} partitions  asked for if it is null
 * @param {any} filled  a message as the console describes it, or {}
 * @param {() => void} done
 */
export async function produceTo(topic, partitions, filled, done) {
  const count = partitions ?? (await get(`${path('api', 'topics', topic)}?n=1`)).partitions
  const said = h('span', { class: 'said', role: 'status' })
  const key = field('key', 'Key', filled.key, 2, filled.key === undefined)
  const value = field('value', 'Value', filled.value, 8, false)
  const partition = h('select', { id: 'produce-partition' }, h('option', { value: '' }, 'by the key'), Array.from({ length: Math.min(count, 1000) }, (_, at) => h('option', { value: at }, String(at))))
  const times = h('input', { id: 'produce-times', type: 'number', min: 1, max: 1000, value: 1 })
  const list = h('div', { class: 'headers' })
  const original = filled.headers ?? []
  /** @type {Map<Element, number>} */
  const kept = new Map() // rows that nobody has changed, with the place of the header in the message
  const addHeader = (header = null, place = 0) => {
    const text = header === null ? '' : editable(header, /[\r\n]/)
    const row = h(
      'div',
      { class: 'toolbar', oninput: () => kept.delete(row) },
      h('input', { 'aria-label': 'Header', placeholder: 'name', value: header?.name ?? '', size: 16, spellcheck: 'false', disabled: text === null, required: header === null }),
      h('input', { 'aria-label': 'Value of the header', placeholder: 'value', value: text ?? asItIs(header), disabled: text === null, size: 32, spellcheck: 'false' }),
      h('button', { type: 'button', class: 'button', onclick: () => { kept.delete(row); row.remove() } }, 'Remove'),
    )
    if (header !== null) kept.set(row, place)
    list.append(row)
    return row
  }
  original.forEach((header, place) => addHeader(header, place))
  const readHeaders = () => {
    if (kept.size === original.length && list.children.length === original.length) return {}
    return { headers: [...list.children].map((row) => kept.get(row) ?? [...row.querySelectorAll('input')].map((each) => each.value)) }
  }
  /** The record as a line of JSON, which has room for all that the form takes; of one that is there, that one. */
  const line = () => {
    const produce = command(['produce', ...option('--partition', partition.value), '--json'], [topic])
    if (filled.offset !== undefined) return `${command(['consume', '--partition', filled.partition, '--from', filled.offset, '-n', '1', '-o', 'json'], [topic])} | ${produce}`
    const record = quoted(JSON.stringify({ ...key.read(), ...value.read(), ...readHeaders() }))
    return `${Number(times.value) > 1 ? `yes ${record} | head -n ${times.value}` : `printf '%s\\n' ${record}`} | ${produce}`
  }
  const form = h(
    'form',
    {
      onsubmit: async (event) => {
        event.preventDefault()
        fill(said, 'producing …')
        try {
          const { rows } = await change('POST', path('api', 'topics', topic, 'records'), {
            ...(filled.offset === undefined ? {} : { like: { partition: filled.partition, offset: filled.offset } }),
            ...key.read(),
            ...value.read(),
            ...readHeaders(),
            partition: partition.value === '' ? null : Number(partition.value),
            times: Number(times.value),
          })
          const last = rows[rows.length - 1]
          fill(said, 'It is at ', h('a', { href: withQuery(path('topics', topic, 'messages'), { partition: last.partition, at: last.offset, open: `${last.partition}:${last.offset}` }), onclick: () => box.close() }, `partition ${last.partition}, offset ${number(last.offset)}`))
          done()
        } catch (error) {
          fill(said, problem(error))
        }
      },
    },
    h(
      'div',
      { class: 'form body' },
      ...key.rows,
      ...value.rows,
      h('span', { class: 'secondary top' }, 'Headers'),
      h('div', {}, list, h('button', { type: 'button', class: 'button', onclick: () => addHeader().querySelector('input').focus() }, 'Add a header')),
      h('label', { for: 'produce-partition' }, 'Partition'),
      h('div', { class: 'toolbar' }, partition, h('label', { class: 'field', for: 'produce-times' }, 'times'), times),
    ),
    commandRow(line),
    h('footer', {}, said, h('button', { class: 'button main' }, filled.offset === undefined ? 'Produce' : 'Produce again')),
  )
  const box = dialog(filled.offset === undefined ? `Produce to ${visible(topic)}` : `Produce again to ${visible(topic)}`, form)
  value.area.focus()
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit()
  })
}

/** A text that may be null. What nobody changes stays in the console: it is sent as it was, whatever it is. */
function field(name, label, data, rows, startsNull) {
  const isOriginal = data !== null && data !== undefined
  const text = isOriginal ? editable(data, /\r/) : ''
  const id = `produce-${name}`
  let isChanged = !isOriginal
  let isLocked = text === null
  const area = h('textarea', { id, rows, spellcheck: 'false', value: text ?? asItIs(data), oninput: () => { isChanged = true } })
  const isNull = h('input', { type: 'checkbox', onchange: () => arrange() })
  const replace = h('button', { type: 'button', class: 'button', 'aria-label': `Write another ${name}`, onclick: () => { isLocked = false; isChanged = true; area.value = ''; arrange(); area.focus() } }, 'Write another')
  isNull.checked = data === null || startsNull
  const arrange = () => {
    area.disabled = isNull.checked || isLocked
    replace.hidden = !isLocked
  }
  arrange()
  return {
    area,
    rows: [
      h('label', { class: 'top', for: id }, label),
      h('div', {}, area, h('label', { class: 'check' }, isNull, name === 'value' ? 'null: a tombstone' : 'null'), replace),
    ],
    read: () => (isNull.checked ? { [name]: null } : isChanged ? { [name]: area.value } : {}),
  }
}

/**
 * The text of a part of a message, if a form keeps every byte of it; else null.
 * @param {{base64?: string, size: number|null, name?: string}} data
 * @param {RegExp} lost  characters that the form would change
 */
function editable(data, lost) {
  if (data.base64 === undefined) return null // a null header
  const bytes = bytesOf(data.base64)
  if (data.size !== bytes.length || /[\r\n\ud800-\udfff]/u.test(data.name ?? '')) return null
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    return lost.test(text) ? null : text
  } catch {
    return null
  }
}

/** What stands in the place of what a form cannot hold. @param {{size: number|null}} data */
function asItIs(data) {
  return data.size === null ? 'null' : `${number(data.size)} bytes, sent as they are`
}
