// Clients: members of groups on any Kafka; on a minibroker with a control socket, every connection.

import { fill, h, setText } from '../dom.js'
import { assignment, bytes, counted, duration, number } from '../format.js'
import { termLink } from '../glossary.js'
import { path } from '../router.js'
import { Table, filterField } from '../table.js'
import { empty, panel, problem } from '../view.js'

const REFRESH_MS = 1000 // the broker goes on recording for two seconds after a look: what is in hand was seen to arrive

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('Clients')
  const state = { filter: view.query.get('filter') ?? '', from: 0 }
  const about = h('span', { class: 'about' })
  const ofBroker = h('span', {})
  const of = h('span', {}, 'by the ', termLink('control socket'), ofBroker)
  const connections = h('div', {})
  const members = h('div', {})
  /** @type {any} */
  let found = null
  const memberTable = new Table({
    label: 'Members of groups',
    noun: 'member',
    key: (row) => row.member_id,
    sort: { column: 'client_id', descending: false },
    opens: (row) => path('groups', row.group),
    onSort: () => draw(),
    onPage: (from) => { state.from = from; draw() },
    columns: [
      { name: 'client_id', label: 'client', head: true, sorts: true, kind: 'clip', cell: (row) => ({ text: row.client_id, href: path('groups', row.group), title: row.client_id }) },
      { name: 'host', label: 'host', sorts: true, kind: 'clip', cell: (row) => ({ text: row.host, title: row.host }) },
      { name: 'group', label: 'group', sorts: true, kind: 'clip', cell: (row) => ({ text: row.group, href: path('groups', row.group), title: row.group }) },
      { name: 'state', label: 'state', sorts: true, cell: (row) => ({ text: row.state, kind: row.state === 'Stable' ? 'tag good' : 'tag' }) },
      { name: 'count', label: 'partitions', number: true, cell: (row) => number(row.partitions.length) },
      { name: 'partitions', label: 'assignment', term: 'assignment', kind: 'fill', cell: (row) => (row.unread ? { text: row.unread, kind: 'dim' } : { text: [...row.tasks, assignment(row.partitions)].join(' '), title: row.partitions.join(', ') }) },
    ],
  })
  const connectionTable = new Table({
    label: 'Connections',
    noun: 'connection',
    key: (row) => String(row.connection),
    sort: { column: 'connection', descending: false },
    opens: (row) => path('clients', row.connection),
    onSort: () => draw(),
    columns: [
      { name: 'connection', label: 'connection', head: true, sorts: true, number: true, cell: (row) => ({ text: `#${row.connection}`, href: path('clients', row.connection) }) },
      { name: 'client_id', label: 'client', sorts: true, kind: 'clip', cell: (row) => (row.client_id ? { text: row.client_id, title: row.client_id } : { text: 'no client id', kind: 'dim' }) },
      { name: 'address', label: 'address', kind: 'address', sorts: true, cell: (row) => row.address },
      { name: 'listener', label: 'listener', kind: 'extra', cell: (row) => row.listener },
      { name: 'principal', label: 'user', kind: 'clip extra', cell: (row) => ({ text: row.principal, title: row.principal }) },
      { name: 'idle_ms', label: 'idle', number: true, sorts: true, cell: (row) => duration(row.idle_ms / 1000) },
      { name: 'requests', label: 'requests seen', number: true, cell: (row) => number(sum(row, 1)) },
      { name: 'bytes', label: 'bytes out', number: true, cell: (row) => bytes(sum(row, 3)) },
      { name: 'in_hand', label: 'now', cell: (row) => (row.in_hand ? { text: `${row.in_hand.api}, ${duration(row.in_hand.for_us / 1e6)}`, kind: 'tag' } : { text: 'idle', kind: 'quiet' }) },
      { name: 'last_error', label: 'last error', sorts: true, kind: 'clip', cell: (row) => (row.last_error ? { text: row.last_error, kind: 'bad', title: row.last_error } : '') },
    ],
  })
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Clients'), about, h('div', { class: 'end' }, filterField(state.filter, 'Filter clients', (filter) => { state.filter = filter; state.from = 0; view.remember({ filter }); draw() }))),
    panel('Connections', { about: of }, connections),
    panel('Members of groups', {}, members),
  )
  view.every(REFRESH_MS, async () => {
    if (view.cluster?.control_broker != null) setText(ofBroker, ` of broker ${view.cluster.control_broker}`)
    found = await view.get('/api/clients')
    draw()
  })

  function draw() {
    if (found === null) return
    const words = state.filter.toLowerCase().split(/\s+/)
    const fits = (row) => words.every((word) => `${row.client_id ?? ''} ${row.group ?? ''} ${row.address ?? ''} ${row.host ?? ''}`.toLowerCase().includes(word))
    const shown = found.members.filter(fits)
    setText(about, counted(found.members.length, 'member') + (found.looked_through < found.groups ? ` of the first ${number(found.looked_through)} of ${counted(found.groups, 'group')}` : ` in ${counted(found.groups, 'group')}`))
    if (found.failure) fill(connections, problem(new Error(found.failure)))
    else if (found.connections === null) {
      fill(connections, empty('This needs minibroker with --control', 'Kafka’s protocol has no list of connections. A minibroker shows them: ', h('code', {}, 'minibroker serve --console'), '.'))
    } else {
      if (connectionTable.element.parentElement !== connections) fill(connections, connectionTable.element)
      connectionTable.showAll(found.connections.filter(fits), 0, (row) => row[connectionTable.options.sort.column])
    }
    if (found.members.length === 0) fill(members, empty('No group has members now', 'Start a consumer with a group.id, such as ', h('code', {}, 'minibroker consume orders --group billing'), '.'))
    else {
      if (memberTable.element.parentElement !== members) fill(members, memberTable.element)
      memberTable.showAll(shown, state.from, (row) => row[memberTable.options.sort.column])
    }
  }
}

/** Over all APIs: a count of what was seen while a page was open; null if that is nothing. */
function sum(row, place) {
  const seen = Object.values(row.requests)
  return seen.length === 0 ? null : seen.reduce((total, each) => total + each[place], 0)
}
