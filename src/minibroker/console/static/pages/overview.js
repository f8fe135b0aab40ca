// The cluster at a glance: is it whole, who is behind, what goes in.

import { fill, h, setText } from '../dom.js'
import { lagLine } from '../drawings.js'
import { bytes, counted, number, rate, visible } from '../format.js'
import { path, withQuery } from '../router.js'
import { Table } from '../table.js'
import { empty, panel } from '../view.js'

const REFRESH_MS = 3000
const BUSIEST = 8

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('')
  const about = h('span', { class: 'about' })
  const facts = h('dl', { class: 'facts' })
  const brokers = new Table({
    label: 'Brokers',
    noun: 'broker',
    key: (row) => String(row.id),
    sort: { column: '', descending: false },
    columns: [
      { name: 'id', label: 'broker', head: true, cell: (row) => String(row.id) },
      { name: 'address', label: 'address', kind: 'fill', cell: (row) => `${row.host}:${row.port}` },
      { name: 'role', label: 'role', cell: (row) => (row.controller ? { text: 'controller', kind: 'tag' } : '') },
    ],
  })
  const lag = h('div', {})
  const busiest = h('div', {})
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Overview'), about),
    panel('Cluster', {}, h('div', { class: 'body' }, facts)),
    h(
      'div',
      { class: 'panels' },
      panel('Lag, worst five groups', { end: h('a', { href: '/groups' }, 'All groups') }, lag),
      panel('Topics with most messages', { end: h('a', { href: withQuery('/topics', { sort: '-messages' }) }, 'All topics') }, busiest),
    ),
    panel('Brokers', {}, brokers.element),
  )
  const worst = new Table({
    label: 'Groups that are furthest behind',
    noun: 'group',
    key: (row) => row.group,
    sort: { column: '', descending: false },
    opens: (row) => path('groups', row.group),
    columns: [
      { name: 'group', label: 'group', head: true, kind: 'fill', cell: (row) => ({ text: row.group, href: path('groups', row.group), title: row.group }) },
      { name: 'lag', label: 'lag', number: true, cell: (row) => number(row.lag) },
      { name: 'slope', label: 'lag/s', number: true, cell: (row) => signed(row.slope) },
      { name: 'line', label: '10 min', cell: (row) => ({ node: lagLine(row.points), key: JSON.stringify(row.points.at(-1)) }) },
    ],
  })
  const most = new Table({
    label: 'Topics with most messages',
    noun: 'topic',
    key: (row) => row.name,
    sort: { column: '', descending: false },
    opens: (row) => path('topics', row.name),
    columns: [
      { name: 'name', label: 'topic', head: true, kind: 'fill', cell: (row) => ({ text: row.name, href: path('topics', row.name), title: row.name }) },
      { name: 'messages', label: 'messages', number: true, cell: (row) => number(row.messages) },
      { name: 'rate', label: '/s in', number: true, cell: (row) => rate(row.rate) },
    ],
  })
  /** @type {any} */
  let cluster = null
  /** @type {any} */
  let totals = null
  function drawFacts() {
    if (cluster === null) return
    setFacts(facts, [
      ['brokers', number(cluster.brokers.length)],
      ['topics', number(cluster.topics)],
      ['partitions', number(cluster.partitions)],
      ['without a leader', number(cluster.offline), cluster.offline > 0],
      ['under-replicated', number(cluster.under_replicated), cluster.under_replicated > 0],
      ['messages', number(totals?.messages)],
      ['on disk', bytes(totals?.bytes)],
      ['messages/s in', rate(totals?.rate)],
    ])
  }
  view.every(REFRESH_MS, async () => {
    cluster = await view.get('/api/cluster')
    const problems = cluster.offline + cluster.under_replicated
    fill(
      about,
      h('span', { class: problems === 0 ? 'good' : 'bad' }, problems === 0 ? 'all partitions are served' : 'not all partitions are well'),
    )
    drawFacts()
    brokers.show({ rows: cluster.brokers.map((each) => ({ ...each, controller: each.id === cluster.controller })), total: cluster.brokers.length, from: 0 })
    if (cluster.topics === 0 && busiest.childElementCount === 0) {
      fill(busiest, empty('No topics yet', 'Create one on the page Topics, or with ', h('code', {}, 'minibroker topics create orders'), '.'))
    }
  })
  view.every(REFRESH_MS, async () => {
    const found = await view.get('/api/lag')
    if (found.worst.length === 0) {
      fill(lag, empty('No groups yet', 'A consumer with a group.id makes one: ', h('code', {}, 'minibroker consume orders --group billing'), '.'))
      return
    }
    if (worst.element.parentElement === null) fill(lag, worst.element)
    worst.show({ rows: found.worst, total: found.worst.length, from: 0 })
    setText(worst.range, found.looked_through < found.groups ? `of the first ${number(found.looked_through)} of ${counted(found.groups, 'group')}` : `of ${counted(found.groups, 'group')}`)
  })
  view.every(REFRESH_MS, async () => {
    let found
    try {
      found = await view.get(`/api/topics?sort=-messages&n=${BUSIEST}`)
    } catch (error) {
      if (error.status !== 409) throw error
      fill(busiest, empty('Too many partitions to order', visible(error.message)))
      return
    }
    totals = found.totals
    drawFacts()
    if (found.total === 0) return
    if (most.element.parentElement === null) fill(busiest, most.element)
    most.show({ rows: found.rows, total: found.rows.length, from: 0 })
    setText(most.range, `of ${counted(found.total, 'topic')}`)
  })
}

/** @param {Element} list @param {[string, string, boolean?][]} rows */
export function setFacts(list, rows) {
  if (list.childElementCount !== rows.length) {
    fill(list, rows.map(([name]) => h('div', {}, h('dt', {}, name), h('dd', { class: 'big' }))))
  }
  rows.forEach(([, value, isBad], at) => {
    const place = /** @type {HTMLElement} */ (list.children[at].lastElementChild)
    setText(place, value)
    place.classList.toggle('bad', isBad === true)
  })
}

/** @param {number|null} value */
export function signed(value) {
  if (value === null) return '–'
  const text = rate(Math.abs(value))
  return text === '0' || text === '0.0' ? '0' : value > 0 ? `+${text}` : `−${text}`
}
