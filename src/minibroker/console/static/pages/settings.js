// Settings as a table: each with its value for people and what it sets. Its name opens the one dialog that changes it.

import { h } from '../dom.js'
import { meant, visible } from '../format.js'
import { command, commandRow } from '../commands.js'
import { closeAfter, dialog } from '../keys.js'
import { Table } from '../table.js'

/** @type {Record<string, string>} */
const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: 'this topic',
  DYNAMIC_BROKER_CONFIG: 'broker, while it runs',
  DYNAMIC_DEFAULT_BROKER_CONFIG: 'all brokers, while they run',
  STATIC_BROKER_CONFIG: 'server.properties',
}

/**
 * @typedef {{set?: Record<string, string>, unset?: string[]}} Changes
 * @param {object} its
 * @param {boolean} its.mayChange
 * @param {string[]} its.subject  whose they are, as options of a command
 * @param {(changes: Changes) => Promise<unknown>} its.change  throws Failure
 * @param {() => void} its.done
 * @param {() => void} its.onSort
 */
export function settingsTable({ mayChange, subject, change, done, onSort }) {
  const isOpen = (row) => mayChange && !row.read_only
  const opener = (row) => h('button', { type: 'button', class: 'opener', 'data-row-link': true, 'aria-haspopup': 'dialog', onclick: () => edit(row, subject, change, done) }, breakable(row.name))
  return new Table({
    label: 'Settings',
    noun: 'setting',
    size: 500, // more than a broker has
    key: (row) => row.name,
    sort: { column: 'name', descending: false },
    opens: (row) => (isOpen(row) ? row.name : null),
    onSort,
    columns: [
      { name: 'name', label: 'setting', head: true, sorts: true, kind: 'name long', cell: (row) => (isOpen(row) ? { node: opener(row), key: JSON.stringify(row) } : { node: h('span', {}, breakable(row.name)), key: row.name }) },
      { name: 'value', label: 'value', kind: 'clip mono', cell: (row) => (row.sensitive ? { text: 'secret', kind: 'dim' } : { text: row.value ?? '', title: row.value ?? '' }) },
      { name: 'meant', label: 'means', cell: (row) => meant(row.name, row.value) },
      { name: 'source', label: 'set by', sorts: true, cell: (row) => (row.is_default ? { text: 'default', kind: 'quiet' } : { text: SOURCES[row.source] ?? row.source, kind: 'tag' }) },
      { name: 'about', label: 'description', kind: 'wraps secondary', cell: (row) => row.about ?? '' },
    ],
  })
}

/**
 * A name that is broken behind a dot, where it has to be.
 * A wbr that CSS does not display would be a space in the name that is read out.
 * @param {string} name
 */
function breakable(name) {
  return matchMedia('(min-width: 1120px)').matches ? [name] : name.split(/(?<=\.)/).flatMap((part) => [part, h('wbr')])
}

function edit(row, subject, change, done) {
  const said = h('span', { class: 'said', role: 'alert' })
  const means = h('output', { class: 'secondary wide', for: 'setting-value' })
  const value = h('input', { id: 'setting-value', value: row.value ?? '', spellcheck: 'false', autocomplete: 'off', oninput: () => show() })
  const show = () => { means.textContent = meant(row.name, value.value.trim()) }
  const send = (changes) => closeAfter(box, said, () => change(changes), done)
  show()
  const box = dialog(
    `Change ${row.name} of ${visible(subject.join(' ').replace(/^--/, ''))}`,
    h(
      'form',
      { onsubmit: (event) => { event.preventDefault(); void send({ set: { [row.name]: value.value } }) } },
      h(
        'div',
        { class: 'form body' },
        row.about && h('p', { class: 'wide' }, visible(row.about)),
        h('label', { for: 'setting-value' }, 'Value'),
        value,
        means,
      ),
      commandRow(() => command(['configs', 'set', ...subject], [`${row.name}=${value.value}`])),
      h(
        'footer',
        {},
        said,
        !row.is_default && h('button', { type: 'button', class: 'button', onclick: () => send({ unset: [row.name] }) }, 'Change to the default'),
        h('button', { class: 'button main' }, 'Change'),
      ),
    ),
  )
  value.focus()
}
