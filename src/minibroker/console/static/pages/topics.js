// The list of topics. Only the rows on screen are asked for, and of those the figures come second.

import { change } from '../api.js'
import { fill, h, setText } from '../dom.js'
import { bytes, counted, number, rate } from '../format.js'
import { command, commandRow } from '../commands.js'
import { closeAfter, dialog } from '../keys.js'
import { go, path, withQuery } from '../router.js'
import { ROWS_A_PAGE, Table, filterField } from '../table.js'
import { empty, panel, problem } from '../view.js'

const REFRESH_MS = 3000
const GROUPS_NAMED = 2
const FIGURES = ['messages', 'bytes', 'rate']

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('Topics')
  const state = {
    filter: view.query.get('filter') ?? '',
    sort: view.query.get('sort') ?? 'name',
    from: Number(view.query.get('from') ?? 0) || 0,
    internal: view.query.get('internal') === '1',
  }
  /** @type {Record<string, any>} */
  let lags = {}
  const about = h('span', { class: 'about' })
  const place = h('div', {})
  const table = new Table({
    label: 'Topics',
    noun: 'topic',
    key: (row) => row.name,
    sort: { column: state.sort.replace('-', ''), descending: state.sort.startsWith('-') },
    opens: (row) => path('topics', row.name),
    onSort: (sort) => set({ sort: (sort.descending ? '-' : '') + sort.column, from: 0 }),
    onPage: (from) => set({ from }),
    columns: [
      { name: 'name', label: 'topic', head: true, sorts: true, kind: 'name long', cell: (row) => ({ text: row.name, href: path('topics', row.name), title: row.name }) },
      { name: 'partitions', label: 'partitions', number: true, sorts: true, cell: (row) => number(row.partitions) },
      { name: 'replication', label: 'replicas', number: true, sorts: true, kind: 'extra own', cell: (row) => number(row.replication) },
      { name: 'messages', label: 'messages', number: true, sorts: true, cell: (row) => number(row.messages) },
      { name: 'bytes', label: 'on disk', number: true, sorts: true, cell: (row) => bytes(row.bytes) },
      { name: 'rate', label: '/s in', number: true, sorts: true, cell: (row) => rate(row.rate) },
      { name: 'groups', label: 'groups and their lag', kind: 'fill', cell: (row) => groupsOf(lags[row.name]) },
      { name: 'state', label: 'state', cell: stateOf },
    ],
  })
  const internal = h('input', { type: 'checkbox', onchange: () => set({ internal: internal.checked, from: 0 }) })
  internal.checked = state.internal
  const create = view.forChanges(h('button', { type: 'button', class: 'button main', onclick: () => createTopic(() => refresh()) }, 'Create topic'))
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Topics'), about),
    panel(
      'All topics',
      {
        end: [
          h('label', { class: 'check' }, internal, 'show internal'),
          filterField(state.filter, 'Filter topics', (filter) => set({ filter, from: 0 })),
          create,
        ],
      },
      place,
    ),
  )
  const address = (figures) =>
    withQuery('/api/topics', {
      filter: state.filter,
      sort: state.sort,
      from: state.from || null,
      n: ROWS_A_PAGE,
      internal: state.internal ? 1 : null,
      figures,
    })
  let isFirst = true
  /** The newest question; answers to older ones are not shown. */
  let asked = 0
  /** @type {Map<string, any>} */
  const figures = new Map()
  const known = (found) => ({ ...found, rows: found.rows.map((row) => ({ ...figures.get(row.name), ...row })) })
  /** @type {any} */
  let shown = null
  view.every(REFRESH_MS, ask)
  const refresh = () => void view.attempt(ask) // also while an earlier answer is on its way

  async function ask() {
    const question = ++asked
    const isCurrent = () => question === asked
    if (isFirst) {
      const kept = await view.get(`${address(null)}&kept=1`).catch(refused)
      if (kept !== null && isCurrent()) showRows(kept)
    }
    const more = isFirst ? '&fresh=1' : ''
    isFirst = false
    // Sorted by a figure, the list has figures already; else they come when they come.
    const second = FIGURES.includes(state.sort.replace('-', '')) ? null : view.attempt(() => showFigures(isCurrent))
    const found = await view.get(address(null) + more).catch(refused)
    if (found !== null && isCurrent()) showRows(found)
    await second
  }

  async function showFigures(isCurrent) {
    const found = await view.get(address(1)).catch(refused)
    if (found === null || !isCurrent()) return
    for (const row of found.rows) figures.set(row.name, row)
    if (shown !== null) table.show(known(shown))
  }

  function showRows(found) {
    shown = null
    setText(about, found.total === found.all ? counted(found.all, 'topic') : `${number(found.total)} of ${counted(found.all, 'topic')}`)
    if (found.total === 0) {
      fill(place, found.all === 0 ? noTopics() : empty(`No topic contains “${state.filter}”`, 'Clear the filter to see all.'))
      return
    }
    if (table.element.parentElement !== place) fill(place, table.element)
    table.element.classList.toggle('without-own', view.cluster !== null && view.cluster.brokers.length + view.cluster.gone.length < 2)
    shown = found
    table.show(known(found))
    hearLags(found.rows.map((row) => row.name))
  }

  /** @type {string[]} */
  let names = []
  /** @type {(() => void)|null} */
  let anew = null
  function hearLags(rows) {
    if (rows.join() === names.join()) return
    names = rows
    if (anew !== null) anew()
    else {
      anew = view.hear(() => `/api/stream/lag?${new URLSearchParams(names.map((name) => ['topic', name]))}`, (found) => {
        lags = found.topics
        if (shown !== null) table.show(known(shown))
      })
    }
  }

  function refused(error) {
    if (error.status !== 409) throw error
    fill(place, problem(error))
    return null
  }

  /** @param {Record<string, any>} changes */
  function set(changes) {
    Object.assign(state, changes)
    view.remember({
      filter: state.filter,
      sort: state.sort === 'name' ? null : state.sort,
      from: state.from || null,
      internal: state.internal ? 1 : null,
    })
    refresh()
  }
}

function groupsOf(groups) {
  if (!groups || groups.length === 0) return { text: '–', kind: 'dim' }
  const text = groups.map((each) => `${each.group} ${number(each.lag)}`).join(', ')
  return { text: groups.length <= GROUPS_NAMED ? text : `${number(groups.length)} groups, worst ${number(groups[0].lag)}`, title: text }
}

function stateOf(row) {
  if (row.offline > 0) return { text: `${number(row.offline)} without a leader`, kind: 'tag bad' }
  if (row.under_replicated > 0) return { text: `${number(row.under_replicated)} under-replicated`, kind: 'tag bad' }
  return row.internal ? { text: 'internal', kind: 'tag' } : ''
}

function noTopics() {
  return empty(
    'No topics yet',
    'Create one here, or on the command line: ',
    h('code', {}, 'minibroker topics create orders --partitions 3'),
    '. A producer may create one, too, if the broker allows it.',
  )
}

/** @param {() => void} done */
function createTopic(done) {
  const said = h('span', { class: 'said', role: 'alert' })
  const name = h('input', { id: 'new-name', required: true, maxlength: 249, autocomplete: 'off', spellcheck: 'false' })
  const partitions = h('input', { id: 'new-partitions', type: 'number', min: 1, value: 1 })
  const replication = h('input', { id: 'new-replication', type: 'number', min: 1, value: 1 })
  const settings = h('textarea', { id: 'new-settings', rows: 3, placeholder: 'retention.ms=60000', spellcheck: 'false' })
  const form = h(
    'form',
    {
      method: 'dialog',
      onsubmit: async (event) => {
        event.preventDefault()
        const created = () =>
          change('POST', '/api/topics', {
            name: name.value.trim(),
            partitions: Number(partitions.value),
            replication: Number(replication.value),
            settings: settingsIn(settings.value),
          })
        await closeAfter(box, said, created, () => {
          done()
          go(path('topics', name.value.trim()))
        })
      },
    },
    h(
      'div',
      { class: 'form body' },
      h('label', { for: 'new-name' }, 'Name'),
      name,
      h('label', { for: 'new-partitions' }, 'Partitions'),
      partitions,
      h('label', { for: 'new-replication' }, 'Replicas'),
      replication,
      h('label', { for: 'new-settings', class: 'top' }, 'Settings'),
      settings,
    ),
    commandRow(() => command(['topics', 'create', '--partitions', partitions.value, '--replication-factor', replication.value, ...Object.entries(settingsIn(settings.value)).flatMap(([key, value]) => ['--config', `${key}=${value}`])], [name.value.trim() || 'NAME'])),
    h('footer', {}, said, h('button', { class: 'button main' }, 'Create topic')),
  )
  const box = dialog('Create topic', form)
  name.focus()
}

/** Lines of name=value. @param {string} text @returns {Record<string, string>} */
export function settingsIn(text) {
  /** @type {Record<string, string>} */
  const found = {}
  for (const line of text.split('\n').map((each) => each.trim())) {
    const at = line.indexOf('=')
    if (line !== '') found[at < 0 ? line : line.slice(0, at).trim()] = at < 0 ? '' : line.slice(at + 1).trim()
  }
  return found
}
