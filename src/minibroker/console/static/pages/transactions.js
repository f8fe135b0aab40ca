// Transactions: which are open, since when, and what they hold back.

import { change } from '../api.js'
import { fill, h, setText } from '../dom.js'
import { assignment, counted, duration, number, time, visible } from '../format.js'
import { command, commandRow } from '../commands.js'
import { closeAfter, dialog } from '../keys.js'
import { path } from '../router.js'
import { Table, filterField } from '../table.js'
import { empty, panel } from '../view.js'

const REFRESH_MS = 3000
const OPEN = ['Ongoing', 'PrepareCommit', 'PrepareAbort']

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('Transactions')
  const state = { filter: view.query.get('filter') ?? '', from: 0 }
  const about = h('span', { class: 'about' })
  const place = h('div', {})
  /** @type {any[]} */
  let rows = []
  const table = new Table({
    label: 'Transactions',
    noun: 'transactional id',
    key: (row) => row.transactional_id,
    sort: { column: 'state', descending: true },
    onSort: () => draw(),
    onPage: (from) => { state.from = from; draw() },
    columns: [
      { name: 'transactional_id', label: 'transactional id', head: true, sorts: true, kind: 'name', cell: (row) => ({ text: row.transactional_id, title: row.transactional_id }) },
      { name: 'state', label: 'state', sorts: true, cell: (row) => ({ text: row.state, kind: OPEN.includes(row.state) ? 'tag held' : 'tag' }) },
      { name: 'producer_id', label: 'producer', number: true, sorts: true, cell: (row) => String(row.producer_id) },
      { name: 'producer_epoch', label: 'epoch', term: 'producer epoch', number: true, cell: (row) => number(row.producer_epoch) },
      { name: 'started', label: 'open for', number: true, sorts: true, cell: (row) => (row.started === null ? { text: '–', kind: 'dim' } : { text: duration(Math.max(0, (Date.now() - row.started) / 1000)), title: `since ${time(row.started)} UTC`, kind: 'plain' }) },
      { name: 'timeout', label: 'times out after', number: true, cell: (row) => (row.timeout_ms === null ? { text: '–', kind: 'dim' } : duration(row.timeout_ms / 1000)) },
      { name: 'partitions', label: 'holds back', term: 'held', kind: 'fill', cell: (row) => ({ text: assignment(row.partitions), title: row.partitions.join(', ') }) },
      { name: 'abort', label: 'abort', cell: (row) => (view.mayChange && row.state === 'Ongoing' ? { node: h('button', { type: 'button', class: 'button', 'aria-label': `Abort ${visible(row.transactional_id)}`, onclick: () => abort(row.transactional_id, refresh) }, 'Abort'), key: row.transactional_id } : '') },
    ],
  })
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Transactions'), about),
    panel('Transactional ids', { about: 'open ones first', end: filterField(state.filter, 'Filter transactions', (filter) => { state.filter = filter; state.from = 0; view.remember({ filter }); draw() }) }, place),
  )
  const refresh = view.every(REFRESH_MS, async () => {
    try {
      ;({ rows } = await view.get('/api/transactions'))
    } catch (error) {
      if (error.status !== 501) throw error
      fill(place, empty('This needs Kafka 3.0 or later', 'An older broker does not list its transactions. A topic’s partitions still show where an open one holds back the last stable offset.'))
      return
    }
    draw()
  })

  function draw() {
    const open = rows.filter((row) => OPEN.includes(row.state)).length
    setText(about, `${counted(rows.length, 'transactional id')}, ${number(open)} open`)
    if (rows.length === 0) {
      fill(place, empty('No transactional ids yet', 'A producer with transactional.id has one.'))
      return
    }
    const words = state.filter.toLowerCase().split(/\s+/)
    const shown = rows.filter((row) => words.every((word) => row.transactional_id.toLowerCase().includes(word)))
    if (table.element.parentElement !== place) fill(place, table.element)
    const { column } = table.options.sort
    table.showAll(shown, state.from, (row) => (column === 'state' ? [OPEN.includes(row.state) ? 1 : 0, row.state].join() : row[column]))
  }
}

function abort(id, done) {
  const said = h('span', { class: 'said', role: 'alert' })
  const button = h('button', { type: 'button', class: 'button danger', onclick: async () => {
    await closeAfter(box, said, () => change('POST', path('api', 'transactions', id, 'abort')), done)
  } }, 'Abort transaction')
  const line = commandRow(() => command(['transactions', 'abort'], [id]))
  const box = dialog(`Abort the transaction of ${visible(id)}`, h('p', { class: 'body' }, 'Its producer is fenced: its next request fails.'), line, h('footer', {}, said, button))
}
