// The list of groups with their lag, and how it went in the last ten minutes.

import { fill, h, setText } from '../dom.js'
import { timeLine } from '../drawings.js'
import { counted, number, waited } from '../format.js'
import { path, withQuery } from '../router.js'
import { ROWS_A_PAGE, Table, filterField } from '../table.js'
import { empty, panel, problem } from '../view.js'
import { signed } from './overview.js'

const REFRESH_MS = 3000

/**
 * What a group is, unless it is one of consumers in the classic protocol: of a protocol of Kafka 4, or with members that
 * are no consumers, such as workers of Kafka Connect.
 * @returns {string[]}
 */
export const nature = (group) => (group.type && group.type !== 'classic' ? [group.type === 'consumer' ? 'consumer protocol' : `${group.type} group`] : group.protocol_type && group.protocol_type !== 'consumer' ? [`protocol type ${group.protocol_type}`] : [])

/** The state of what only fetches: a client that commits nothing, such as Spark's source. */
export const ONLY_FETCHES = 'fetches only'

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('Groups')
  const state = {
    filter: view.query.get('filter') ?? '',
    sort: view.query.get('sort') ?? 'group',
    from: Number(view.query.get('from') ?? 0) || 0,
  }
  const about = h('span', { class: 'about' })
  const place = h('div', {})
  const table = new Table({
    label: 'Groups',
    noun: 'group',
    key: (row) => row.group,
    sort: { column: state.sort.replace('-', ''), descending: state.sort.startsWith('-') },
    opens: (row) => path('groups', row.group),
    onSort: (sort) => set({ sort: (sort.descending ? '-' : '') + sort.column, from: 0 }),
    onPage: (from) => set({ from }),
    columns: [
      { name: 'group', label: 'group', head: true, sorts: true, kind: 'name', cell: (row) => ({ text: row.group, href: path('groups', row.group), title: row.group }) },
      { name: 'state', label: 'state', sorts: true, cell: (row) => ({ text: row.failure ?? [row.state, ...nature(row)].join(', '), kind: row.failure ? 'bad' : row.state === 'Stable' ? 'tag good' : 'tag' }) },
      { name: 'members', label: 'members', number: true, sorts: true, cell: (row) => number(row.members) },
      { name: 'topics', label: 'topics', kind: 'clip', cell: (row) => (row.topics.length > 0 ? { text: row.topics.join(', '), title: row.topics.join(', ') } : { text: '–', kind: 'dim' }) },
      { name: 'lag', label: 'lag', term: 'lag', number: true, sorts: true, cell: (row) => number(row.lag) },
      { name: 'slope', label: 'lag/s', number: true, sorts: true, cell: (row) => signed(row.slope) },
      { name: 'seconds', label: 'oldest unread', number: true, cell: (row) => (row.lag === 0 ? { text: 'none', kind: 'quiet' } : row.lag === null ? '–' : waited(row.seconds)) },
      { name: 'line', label: 'lag, 10 min', kind: 'fill line', cell: (row) => ({ node: timeLine(row.points, { stretches: true }), key: JSON.stringify(row.points.at(-1)) }) },
    ],
  })
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Groups'), about),
    panel('All groups', { end: filterField(state.filter, 'Filter groups', (filter) => set({ filter, from: 0 })) }, place),
  )
  const refresh = view.every(REFRESH_MS, async () => {
    let found
    try {
      found = await view.get(withQuery('/api/groups', { filter: state.filter, sort: state.sort, from: state.from || null, n: ROWS_A_PAGE }))
    } catch (error) {
      if (error.status !== 409) throw error
      fill(place, problem(error))
      return
    }
    setText(about, found.total === found.all ? counted(found.all, 'group') : `${number(found.total)} of ${counted(found.all, 'group')}`)
    if (found.total === 0) {
      fill(place, found.all === 0 ? noGroups() : empty(`No group contains “${state.filter}”`, 'Clear the filter to see all.'))
      return
    }
    if (table.element.parentElement !== place) fill(place, table.element)
    table.show(found)
  })

  function set(changes) {
    Object.assign(state, changes)
    view.remember({ filter: state.filter, sort: state.sort === 'group' ? null : state.sort, from: state.from || null })
    refresh()
  }
}

function noGroups() {
  return empty('No groups yet', 'A consumer with a group.id makes one, such as ', h('code', {}, 'minibroker consume orders --group billing'), '.')
}
