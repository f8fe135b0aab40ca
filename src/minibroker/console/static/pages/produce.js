// The form that sends a message: empty, or filled with one that is to be sent again.

import { change, get } from '../api.js'
import { fill, h } from '../dom.js'
import { bytesOf, number } from '../format.js'
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
  /** @type {Map<Element, string>} */
  const binary = new Map() // values that are no text, which are sent as they were
  const addHeader = (name = '', text = '', base64 = '') => {
    const row = h(
      'div',
      { class: 'toolbar' },
      h('input', { 'aria-label': 'Header', placeholder: 'name', value: name, size: 16, spellcheck: 'false' }),
      h('input', { 'aria-label': 'Value of the header', placeholder: 'value', value: base64 ? `${number(bytesOf(base64).length)} bytes that are no text` : text, disabled: base64 !== '', size: 32, spellcheck: 'false' }),
      h('button', { type: 'button', class: 'button', onclick: () => row.remove() }, 'Remove'),
    )
    if (base64 !== '') binary.set(row, base64)
    list.append(row)
    return row
  }
  for (const header of filled.headers ?? []) {
    const text = header.base64 === undefined ? '' : textOf(header.base64)
    addHeader(header.name, text ?? '', text === null ? header.base64 : '')
  }
  const form = h(
    'form',
    {
      onsubmit: async (event) => {
        event.preventDefault()
        fill(said, 'producing …')
        try {
          const { rows } = await change('POST', path('api', 'topics', topic, 'records'), {
            ...key.read(),
            ...value.read(),
            partition: partition.value === '' ? null : Number(partition.value),
            headers: [...list.children].map((row) => {
              const [name, text] = [...row.querySelectorAll('input')].map((each) => each.value)
              return binary.has(row) ? [name, { base64: binary.get(row) }] : [name, text]
            }),
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
    h('footer', {}, said, h('button', { class: 'button main' }, filled.offset === undefined ? 'Produce' : 'Produce again')),
  )
  const box = dialog(filled.offset === undefined ? 'Produce' : 'Produce again', form)
  value.area.focus()
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit()
  })
}

/** A text that may be null, and may be bytes that are no text: those are sent as they were. */
function field(name, label, data, rows, startsNull) {
  const text = data === null || data === undefined ? '' : textOf(data.base64)
  const isBytes = data !== null && data !== undefined && (text === null || data.size > bytesOf(data.base64).length)
  const id = `produce-${name}`
  const area = h('textarea', { id, rows, spellcheck: 'false', value: isBytes ? `${number(data.size)} bytes that are no text` : text ?? '' })
  const isNull = h('input', { type: 'checkbox', onchange: () => arrange() })
  isNull.checked = data === null || startsNull
  const arrange = () => { area.disabled = isNull.checked || isBytes }
  arrange()
  return {
    area,
    rows: [
      h('label', { class: 'top', for: id }, label),
      h('div', {}, area, h('label', { class: 'check' }, isNull, name === 'value' ? 'null: a tombstone' : 'null')),
    ],
    read: () => (isNull.checked ? { [name]: null } : isBytes ? { [`${name}_base64`]: data.base64 } : { [name]: area.value }),
  }
}

/** @param {string} base64 */
function textOf(base64) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytesOf(base64))
  } catch {
    return null
  }
}
