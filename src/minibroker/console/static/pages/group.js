// One group: its members and what they read, how far behind it is, and the reset of its offsets.

import { Failure, change } from '../api.js'
import { command, commandRow, option } from '../commands.js'
import { copyTo } from '../copying.js'
import { fill, h, setText } from '../dom.js'
import { timeLine } from '../drawings.js'
import { assignment, counted, duration, number, visible, waited } from '../format.js'
import { termLink } from '../glossary.js'
import { closeAfter, dialog } from '../keys.js'
import { go, path, withQuery } from '../router.js'
import { Table, partitionName } from '../table.js'
import { empty, panel, problem } from '../view.js'
import { ONLY_FETCHES, nature } from './groups.js'
import { setFacts, signed } from './overview.js'
import { planTable, positionField } from './plans.js'

const REFRESH_MS = 2000
const STEADY = ['Stable', 'Empty', 'Dead', 'NotReady'] // states in which no assignment is being made
const TELEMETRY = [
  'minibroker explain --api fetch -o json | minibroker produce telemetry &',
  'while sleep 5; do minibroker metrics show -o json; done | minibroker produce telemetry &',
  'minibroker jobs run telemetry --subscribe telemetry --output telemetry --checkpoint telemetry-checkpoint --continuous 60 --picture lag.png',
]

/** @param {import('../view.js').View} view */
export function show(view) {
  const { group } = view.params
  view.title(`Group ${group}`)
  const about = h('span', { class: 'about' })
  const actions = view.forChanges(
    h(
      'div',
      { class: 'end' },
      h('button', { type: 'button', class: 'button', onclick: () => reset(group, shown, () => refresh()) }, 'Reset offsets'),
      h('button', { type: 'button', class: 'button danger', onclick: () => remove(group) }, 'Delete group'),
    ),
  )
  actions.inert = true // until it is known what the group has
  const said = h('span', { role: 'status' })
  const commands = () => [`export MINIBROKER_BOOTSTRAP=${view.cluster?.bootstrap ?? ''} MINIBROKER_CONTROL=CONTROL-SOCKET`, ...TELEMETRY].join('\n') + '\n'
  const copy = () => copyTo(said, commands(), counted(TELEMETRY.length, 'command'))
  const title = 'They keep the lag of all groups, and what their fetches waited for, as Parquet (docs/recipes/spark-telemetry.md)'
  const longer = h('span', { title }, h('code', {}, 'minibroker jobs run telemetry'), ' ', h('button', { type: 'button', class: 'button', onclick: copy }, 'Copy its commands'), ' ', said)
  const facts = h('dl', { class: 'facts' })
  const line = h('figure', {})
  const members = h('div', {})
  const partitions = h('div', {})
  const fetches = h('div', {})
  const records = h('div', {})
  const moreRecords = h('span', {})
  const state = { from: Number(view.query.get('from') ?? 0) || 0, fetchedFrom: 0, recordsFrom: 0 }
  /** @type {any} */
  let shown = null
  const ofAnyMember = [
    { name: 'client_id', label: 'client', head: true, kind: 'clip', cell: (row) => named(row) },
    { name: 'host', label: 'host', kind: 'clip', cell: (row) => ({ text: row.host, title: row.host }) },
    { name: 'member_id', label: 'member', kind: 'clip extra', cell: (row) => ({ text: row.member_id, title: row.member_id }) },
    { name: 'count', label: 'partitions', number: true, cell: (row) => number(row.partitions.length) },
    { name: 'partitions', label: 'assignment', term: 'assignment', kind: 'fill', cell: (row) => assigned(row, withoutAny(shown)) },
  ]
  const ofNewerMember = [
    { name: 'protocol', label: 'protocol', cell: (row) => row.protocol ?? '–' },
    { name: 'epoch', label: 'epoch', term: 'group epoch', number: true, cell: (row) => number(row.epoch) },
  ]
  const columnsOf = (type) => (type === 'consumer' ? ofNewerMember : type === 'share' || type === 'streams' ? ofNewerMember.slice(1) : [])
  const memberTable = (type) => new Table({
    label: 'Members',
    noun: 'member',
    key: (row) => row.member_id,
    sort: { column: '', descending: false },
    columns: [...ofAnyMember.slice(0, -2), ...columnsOf(type), ...ofAnyMember.slice(-2)],
  })
  /** Each is made when a group of its type is first shown. @type {Map<string, Table>} */
  const memberTables = new Map()
  const partitionTableOf = (/** @type {string} */ type) => new Table({
    label: 'Partitions of the group',
    noun: 'partition',
    key: (row) => `${row.topic}-${row.partition}`,
    sort: { column: view.query.get('sort')?.replace('-', '') ?? 'topic', descending: view.query.get('sort')?.startsWith('-') ?? false },
    opens: (row) => withQuery(path('topics', row.topic, 'messages'), { partition: row.partition, at: row.committed }),
    onSort: (sort) => { view.remember({ sort: (sort.descending ? '-' : '') + sort.column }); draw() },
    onPage: (from) => { state.from = from; view.remember({ from: from || null }); draw() },
    columns: [
      { name: 'topic', label: 'partition', head: true, sorts: true, kind: 'name', cell: (row) => ({ node: partitionName(row.topic, row.partition, { href: withQuery(path('topics', row.topic, 'messages'), { partition: row.partition, at: row.committed }), 'data-row-link': true }), key: String(row.committed) }) },
      { name: 'client_id', label: 'read by', sorts: true, kind: 'clip', cell: (row) => (row.client_id === null ? { text: 'no member', kind: 'dim' } : { text: row.client_id, title: row.client_id }) },
      { name: 'committed', label: type === 'share' ? 'start' : 'committed', term: type === 'share' ? 'start' : undefined, number: true, sorts: true, cell: (row) => number(row.committed) },
      { name: 'end', label: 'end', number: true, sorts: true, cell: (row) => number(row.end) },
      { name: 'lag', label: 'lag', term: 'lag', number: true, sorts: true, cell: (row) => number(row.lag) },
      { name: 'seconds', label: 'oldest unread', number: true, sorts: true, cell: (row) => (row.lag === 0 ? { text: 'none', kind: 'quiet' } : row.lag === null ? '–' : waited(row.seconds)) },
    ],
  })
  /** @type {Table|null} */
  let partitionTable = null
  const fetchTable = new Table({
    label: 'What the group fetches without a commit',
    noun: 'partition',
    key: (row) => `${row.topic}-${row.partition}`,
    sort: { column: 'topic', descending: false },
    opens: (row) => withQuery(path('topics', row.topic, 'messages'), { partition: row.partition, at: row.fetched }),
    onSort: () => draw(),
    onPage: (from) => { state.fetchedFrom = from; draw() },
    columns: [
      { name: 'topic', label: 'partition', head: true, sorts: true, kind: 'name', cell: (row) => ({ node: partitionName(row.topic, row.partition, { href: withQuery(path('topics', row.topic, 'messages'), { partition: row.partition, at: row.fetched }), 'data-row-link': true }), key: String(row.fetched) }) },
      { name: 'client_id', label: 'read by', kind: 'clip', cell: (row) => ({ text: row.client_id || 'no client id', title: row.client_id }) },
      { name: 'host', label: 'host', kind: 'clip', cell: (row) => ({ text: row.host, title: row.host }) },
      { name: 'fetched_ms', label: 'last fetch', number: true, cell: (row) => `${duration(Math.max(0, (Date.now() - row.fetched_ms) / 1000))} ago` },
      { name: 'fetched', label: 'fetched', number: true, cell: (row) => number(row.fetched) },
      { name: 'end', label: 'end', number: true, cell: (row) => number(row.end) },
      { name: 'lag', label: 'lag', term: 'lag', number: true, sorts: true, cell: (row) => number(row.lag) },
      { name: 'seconds', label: 'oldest unread', number: true, sorts: true, cell: (row) => (row.lag === 0 ? { text: 'none', kind: 'quiet' } : row.lag === null ? '–' : waited(row.seconds)) },
    ],
  })
  const recordTable = new Table({
    label: 'Records in flight',
    noun: 'run of records',
    plural: 'runs of records',
    key: (row) => `${row.topic}-${row.partition}-${row.first_offset}`,
    sort: { column: 'topic', descending: false },
    opens: (row) => withQuery(path('topics', row.topic, 'messages'), { partition: row.partition, at: row.first_offset }),
    onSort: () => draw(),
    onPage: (from) => { state.recordsFrom = from; draw() },
    columns: [
      { name: 'topic', label: 'partition', head: true, sorts: true, kind: 'name', cell: (row) => ({ node: partitionName(row.topic, row.partition, { href: withQuery(path('topics', row.topic, 'messages'), { partition: row.partition, at: row.first_offset }), 'data-row-link': true }), key: String(row.first_offset) }) },
      { name: 'first_offset', label: 'first', number: true, sorts: true, cell: (row) => number(row.first_offset) },
      { name: 'last_offset', label: 'last', number: true, cell: (row) => number(row.last_offset) },
      { name: 'state', label: 'state', sorts: true, cell: (row) => row.state },
      { name: 'delivery_count', label: 'deliveries', number: true, sorts: true, cell: (row) => number(row.delivery_count) },
      { name: 'member_id', label: 'held by', kind: 'clip', cell: (row) => ({ text: row.member_id === '' ? '–' : holder(row.member_id), title: row.member_id }) },
      { name: 'held_ms', label: 'held for', number: true, sorts: true, cell: (row) => (row.member_id === '' ? '–' : duration(row.held_ms / 1000)) },
      { name: 'left_ms', label: 'lock ends in', number: true, cell: (row) => (row.member_id === '' ? '–' : duration(Math.max(0, row.left_ms) / 1000)) },
    ],
  })
  /** The client of a member, or else its id. @param {string} id */
  const holder = (id) => shown.members?.find((each) => each.member_id === id)?.client_id || id
  const ofMembers = panel('Members', {}, members)
  const ofPartitions = panel('Partitions', {}, partitions)
  const ofFetches = panel('Fetches', { about: h('span', {}, 'the group ', termLink('fetches only'), ': what its clients got ends there') }, fetches)
  const ofRecords = panel('Records in flight', { about: h('span', {}, 'delivered, and not yet done with ', moreRecords) }, records)
  ofFetches.hidden = ofRecords.hidden = true
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, visible(group)), about, actions),
    panel('Lag', { about: h('span', {}, 'of the last ten minutes; for days: ', longer) }, h('div', { class: 'body lag' }, facts, line)),
    h('div', { class: 'panels roomy' }, ofMembers, ofPartitions),
    ofRecords,
    ofFetches,
  )
  const refresh = view.every(REFRESH_MS, async () => {
    try {
      shown = await view.get(path('api', 'groups', group))
    } catch (error) {
      if (!(error instanceof Failure) || error.status !== 404) throw error
      fill(view.main, h('div', { class: 'head' }, h('h1', {}, visible(group))), panel('No such group', {}, empty('This group does not exist', h('a', { href: '/groups' }, 'Groups'), ' lists those that do.')))
      return
    }
    const onlyFetches = shown.state === ONLY_FETCHES
    actions.inert = ofMembers.hidden = ofPartitions.hidden = onlyFetches
    actions.hidden = onlyFetches || !view.mayChange
    ofFetches.hidden = shown.fetched.length === 0
    ofRecords.hidden = !shown.records
    setText(about, [onlyFetches ? `${ONLY_FETCHES}, commits nothing` : shown.state, ...(shown.members && !onlyFetches ? [counted(shown.members.length, 'member')] : []), ...nature(shown), ...(shown.protocol ? [shown.protocol] : []), ...epochs(shown)].join(', '))
    setFacts(facts, [
      ['lag', number(shown.lag)],
      ['lag/s', signed(shown.slope)],
      ['oldest unread', shown.lag === 0 ? 'none' : duration(shown.seconds)],
    ])
    const most = Math.max(0, ...shown.points.map(([, lag]) => lag))
    fill(
      line,
      timeLine(shown.points, { width: 640, height: 64, stretches: true }),
      h('figcaption', {}, h('span', {}, '10 min ago'), h('span', {}, `highest ${shown.points.length > 0 ? number(most) : '–'}`), h('span', {}, 'now')),
    )
    draw()
  })

  function draw() {
    if (shown.fetched.length > 0) {
      if (fetchTable.element.parentElement !== fetches) fill(fetches, fetchTable.element)
      fetchTable.showAll(shown.fetched, state.fetchedFrom, sortedBy(fetchTable))
    }
    if (shown.records?.length === 0) fill(records, empty('No records in flight', 'Members have done with all that was delivered to them.'))
    else if (shown.records) {
      if (recordTable.element.parentElement !== records) fill(records, recordTable.element)
      recordTable.showAll(shown.records, state.recordsFrom, (row) => (recordTable.options.sort.column === 'topic' ? `${row.topic} ${String(row.partition).padStart(8, '0')} ${String(row.first_offset).padStart(19, '0')}` : row[recordTable.options.sort.column]))
      setText(moreRecords, shown.records_more > 0 ? `and ${number(shown.records_more)} more` : '')
    }
    if (shown.members === null) fill(members, empty('Members unknown', 'This broker lists the group, and does not describe it.'))
    else if (shown.members.length === 0) fill(members, empty('No members now', 'Its committed offsets stay; start a consumer with group.id=', visible(group), ' to go on from them.'))
    else {
      const table = memberTables.get(shown.type) ?? memberTable(shown.type)
      memberTables.set(shown.type, table)
      if (table.element.parentElement !== members) fill(members, table.element)
      table.showAll(shown.members, 0, (row) => row.client_id)
    }
    if (shown.partitions.length === 0) fill(partitions, empty('No partitions', 'It has committed nothing, and none of its members has partitions.'))
    else {
      partitionTable ??= partitionTableOf(shown.type)
      if (partitionTable.element.parentElement !== partitions) fill(partitions, partitionTable.element)
      partitionTable.showAll(shown.partitions, state.from, sortedBy(partitionTable))
    }
  }
}

/** The epoch of a group of Kafka 4's protocols, and that of its assignment while that is older. */
const epochs = (shown) => (shown.epoch === null ? [] : [`epoch ${shown.epoch}`, ...(shown.assignment_epoch === shown.epoch ? [] : [`assigned for epoch ${shown.assignment_epoch}`])])

/** A static member's client goes with its group.instance.id. */
function named(row) {
  if (row.instance_id === null) return { text: row.client_id, title: row.client_id }
  return { text: `${row.client_id} as ${row.instance_id}`, title: `client ${row.client_id}, group.instance.id ${row.instance_id}` }
}

/** Why a member may have no partitions. In a share group members share them: there are never too few. */
function withoutAny({ state, type, members, partitions }) {
  if (!STEADY.includes(state)) return `none yet: the group is ${state}`
  return type !== 'share' && members.length > partitions.length ? 'none: there are more members than partitions' : 'none'
}

/** What a member has, with what it must give away and what it waits for. @param {any} row @param {string} without */
function assigned(row, without) {
  if (row.unread) return { text: row.unread, kind: 'dim' }
  const has = [...row.tasks, ...(row.partitions.length > 0 ? [assignment(row.partitions)] : [])].join(', ')
  const moves = [...(row.revokes.length > 0 ? [`has to revoke ${assignment(row.revokes)}`] : []), ...(row.awaits.length > 0 ? [`waits for ${assignment(row.awaits)}`] : [])]
  const none = moves.length > 0 ? 'none yet' : without
  const pattern = row.subscribed_topic_regex === null ? [] : [`subscribes to ${row.subscribed_topic_regex}`]
  return { text: [has || none, ...moves, ...pattern].join('; '), title: row.partitions.join(', ') }
}

/** What rows of partitions are sorted by. @param {Table} table */
function sortedBy(table) {
  const { column } = table.options.sort
  return (row) => (column === 'topic' ? `${row.topic} ${String(row.partition).padStart(8, '0')}` : row[column])
}

/** Plans first; only what is shown is carried out. */
function reset(group, shown, done) {
  const topics = [...new Set(shown.partitions.map((each) => each.topic))].sort()
  const said = h('div', { role: 'status' })
  const plan = h('div', { class: 'plan' })
  const position = positionField('reset-to', [['beginning', 'the beginning'], ['end', 'the end']], () => clear())
  const topic = h('select', { id: 'reset-topic', onchange: () => clear() }, h('option', { value: '' }, 'all topics of the group'), topics.map((each) => h('option', { value: each }, visible(each))))
  const apply = h('button', { type: 'button', class: 'button danger', disabled: true, onclick: () => ask(true) }, 'Reset offsets to this plan')
  const clear = () => { fill(plan); fill(said); apply.disabled = true }
  const ask = async (execute) => {
    try {
      const { moves } = await change('POST', path('api', 'groups', group, 'reset'), { to: position.read(), topics: topic.value === '' ? [] : [topic.value], execute })
      const failed = moves.filter((each) => each.error)
      fill(plan, planTable(['partition', 'committed', 'then', 'moves by'], moves.map((each) => [`${visible(each.topic)}-${each.partition}`, number(each.before), number(each.after), each.before === null ? '–' : movement(each.after - each.before)])))
      apply.disabled = execute
      if (failed.length > 0) fill(said, problem(new Error(failed[0].error)))
      else fill(said, h('p', { class: execute ? 'good' : 'secondary' }, execute ? `${counted(moves.length, 'partition')} moved.` : 'Nothing has changed yet.'))
      if (execute) done()
    } catch (error) {
      clear()
      fill(said, problem(error))
    }
  }
  dialog(
    `Reset offsets of ${visible(group)}`,
    h(
      'form',
      { onsubmit: (event) => { event.preventDefault(); void ask(false) } },
      h(
        'div',
        { class: 'form body' },
        h('label', { for: 'reset-to' }, 'To'),
        position.element,
        h('label', { for: 'reset-topic' }, 'Topic'),
        topic,
        h('div', { class: 'wide' }, plan, said),
      ),
      commandRow(() => command(['groups', 'reset', '--to', position.read() || 'POSITION', ...option('--topic', topic.value), '--execute'], [group])),
      h('footer', {}, h('button', { class: 'button main' }, 'Show the plan'), apply),
    ),
  )
}

const movement = (by) => (by > 0 ? `+${number(by)}` : by < 0 ? `−${number(-by)}` : '0')

function remove(group) {
  const said = h('span', { class: 'said', role: 'alert' })
  const button = h('button', { type: 'button', class: 'button danger', onclick: async () => {
    await closeAfter(box, said, () => change('DELETE', path('api', 'groups', group)), () => go('/groups'))
  } }, 'Delete group and offsets')
  const line = commandRow(() => command(['groups', 'delete'], [group]))
  const box = dialog(`Delete group ${visible(group)}`, h('p', { class: 'body' }, 'Its committed offsets are lost: its consumers begin where auto.offset.reset sends them.'), line, h('footer', {}, said, button))
}
