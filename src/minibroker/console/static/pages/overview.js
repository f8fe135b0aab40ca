// The cluster at a glance: is it whole, who is behind, what goes in.

import { fill, h, setText } from '../dom.js'
import { timeLine } from '../drawings.js'
import { bytes, counted, number, rate, time, visible, when } from '../format.js'
import { path, withQuery } from '../router.js'
import { Table } from '../table.js'
import { empty, panel } from '../view.js'
import { roleOf } from './brokers.js'

const REFRESH_MS = 3000
const ACTIVITY_MS = 2000
const BUSIEST = 8
const ERRORS = 8

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
    opens: (row) => path('brokers', row.id),
    columns: [
      { name: 'id', label: 'broker', head: true, number: true, cell: (row) => ({ text: String(row.id), href: path('brokers', row.id) }) },
      { name: 'address', label: 'address', cell: (row) => (row.alive ? `${row.host}:${row.port}` : { text: '–', kind: 'dim' }) },
      { name: 'role', label: 'role', cell: roleOf },
    ],
  })
  const lag = h('div', {})
  const busiest = h('div', {})
  const requests = h('div', {})
  const requestsAbout = h('span', {})
  const errors = h('div', {})
  const errorsPanel = panel('Last errors of clients', { end: h('a', { href: '/clients' }, 'All clients') }, errors)
  const internal = h('span', {})
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Overview'), about),
    panel('Cluster', { about: internal }, h('div', { class: 'body' }, facts)),
    h(
      'div',
      { class: 'panels roomy' },
      h(
        'div',
        { class: 'column' },
        panel('Lag, worst five groups', { end: h('a', { href: '/groups' }, 'All groups') }, lag),
        panel('Requests', { about: requestsAbout, end: h('a', { href: '/inside' }, 'Inside') }, requests),
      ),
      h(
        'div',
        { class: 'column' },
        panel('Topics with most messages', { end: h('a', { href: withQuery('/topics', { sort: '-messages' }) }, 'All topics') }, busiest),
        errorsPanel,
        panel('Brokers', { end: h('a', { href: '/brokers' }, 'All brokers') }, brokers.element),
      ),
    ),
  )
  const worst = new Table({
    label: 'Groups that are furthest behind',
    noun: 'group',
    key: (row) => row.group,
    sort: { column: '', descending: false },
    opens: (row) => path('groups', row.group),
    columns: [
      { name: 'group', label: 'group', head: true, kind: 'name', cell: (row) => ({ text: row.group, href: path('groups', row.group), title: row.group }) },
      { name: 'lag', label: 'lag', number: true, cell: (row) => number(row.lag) },
      { name: 'slope', label: 'lag/s', number: true, cell: (row) => signed(row.slope) },
      { name: 'line', label: '10 min', kind: 'fill line', cell: (row) => ({ node: timeLine(row.points, { stretches: true }), key: JSON.stringify(row.points.at(-1)) }) },
    ],
  })
  const most = new Table({
    label: 'Topics with most messages',
    noun: 'topic',
    key: (row) => row.name,
    sort: { column: '', descending: false },
    opens: (row) => path('topics', row.name),
    columns: [
      { name: 'name', label: 'topic', head: true, kind: 'name', cell: (row) => ({ text: row.name, href: path('topics', row.name), title: row.name }) },
      { name: 'messages', label: 'messages', number: true, cell: (row) => number(row.messages) },
      { name: 'bytes', label: 'on disk', number: true, cell: (row) => bytes(row.bytes) },
      { name: 'rate', label: '/s in', number: true, cell: (row) => rate(row.rate) },
    ],
  })
  const requestsLine = h('figure', { class: 'over-time' })
  const apis = new Table({
    label: 'Requests by API',
    noun: 'API',
    key: (row) => row.api,
    sort: { column: '', descending: false },
    columns: [
      { name: 'api', label: 'API', head: true, cell: (row) => ({ text: row.api, href: withQuery('/inside', { filter: `api:${row.api.toLowerCase()}` }) }) },
      { name: 'rate', label: 'requests/s', number: true, cell: (row) => rate(row.rate) },
      { name: 'requests', label: 'counted', number: true, cell: (row) => number(row.requests) },
      { name: 'errors', label: 'errors', number: true, cell: (row) => (row.errors > 0 ? { text: number(row.errors), kind: 'bad' } : '0') },
    ],
  })
  const failed = new Table({
    label: 'Last errors of clients',
    noun: 'error',
    key: (row) => String(row.seq),
    sort: { column: '', descending: false },
    opens: (row) => withQuery('/inside', { seq: row.seq }),
    columns: [
      { name: 'time', label: 'broker time', kind: 'time', cell: (row) => ({ text: when(row.broker_ms).slice(0, -4), kind: 'plain', title: `${time(row.broker_ms)} UTC` }) },
      { name: 'client', label: 'client', kind: 'clip', cell: (row) => ({ text: `#${row.connection} ${row.client_id ?? ''}`, title: row.client_id ?? '' }) },
      { name: 'api', label: 'request', head: true, cell: (row) => ({ text: row.api, href: withQuery('/inside', { seq: row.seq }), title: 'explained in Inside' }) },
      { name: 'error', label: 'error', kind: 'fill', cell: (row) => ({ text: row.error, kind: 'bad', title: [row.error, ...row.topics].join(', ') }) },
    ],
  })
  /** @type {any} */
  let cluster = null
  /** @type {any} */
  let totals = null
  function drawFacts() {
    if (cluster === null) return
    setFacts(facts, [
      ['brokers', cluster.gone.length > 0 ? `${number(cluster.brokers.length)} of ${number(cluster.brokers.length + cluster.gone.length)}` : number(cluster.brokers.length), cluster.gone.length > 0],
      ['topics', number(cluster.topics)],
      ['partitions', number(cluster.partitions)],
      ['without a leader', number(cluster.offline - cluster.internal_offline), cluster.offline > cluster.internal_offline],
      ['under-replicated', number(cluster.under_replicated - cluster.internal_under_replicated), cluster.under_replicated > cluster.internal_under_replicated],
      ['messages', number(totals?.messages)],
      ['on disk', bytes(totals?.bytes)],
      ['messages/s in', rate(totals?.rate)],
    ])
  }
  view.every(REFRESH_MS, async () => {
    cluster = await view.get('/api/cluster')
    const problems = cluster.offline + cluster.under_replicated
    const ofInternal = [
      cluster.internal_offline > 0 && `${number(cluster.internal_offline)} without a leader`,
      cluster.internal_under_replicated > 0 && `${number(cluster.internal_under_replicated)} under-replicated`,
    ].filter(Boolean)
    const troubles = [
      cluster.offline > 0 && `${counted(cluster.offline, 'partition')} without a leader`,
      cluster.under_replicated > 0 && `${counted(cluster.under_replicated, 'partition')} under-replicated`,
    ].filter(Boolean)
    const gone = cluster.gone.length > 0 && `${cluster.gone.length === 1 ? 'broker' : 'brokers'} ${cluster.gone.join(', ')} ${cluster.gone.length === 1 ? 'does' : 'do'} not run`
    fill(about, h('span', { class: problems === 0 && !gone ? 'good' : 'bad' }, [gone, ...troubles].filter(Boolean).join(', ') || 'all partitions have their leader and replicas'))
    setText(internal, cluster.internal_topics > 0 ? `and ${counted(cluster.internal_topics, 'internal topic')} with ${counted(cluster.internal_partitions, 'partition')}${ofInternal.length > 0 ? `: ${ofInternal.join(', ')}` : ''}` : '')
    drawFacts()
    const rows = [...cluster.brokers.map((each) => ({ ...each, alive: true, controller: each.id === cluster.controller })), ...cluster.gone.map((id) => ({ id, alive: false }))].sort((a, b) => a.id - b.id)
    brokers.show({ rows, total: rows.length, from: 0 })
    if (cluster.topics === 0 && busiest.childElementCount === 0) {
      fill(busiest, empty('No topics yet', 'Create one on the page Topics, or with ', h('code', {}, 'minibroker topics create orders'), '.'))
    }
  })
  view.every(ACTIVITY_MS, async () => {
    const found = await view.get('/api/activity')
    errorsPanel.hidden = found.requests === null
    if (found.requests === null) {
      fill(requests, empty('This needs minibroker with --control', 'Kafka’s protocol counts neither requests nor errors of clients. A minibroker shows both: ', h('code', {}, 'minibroker serve --console'), '.'))
      return
    }
    const now = found.requests
    const of = cluster?.control_broker == null ? '' : `of broker ${cluster.control_broker}: `
    setText(requestsAbout, now.rate === null ? `${of}counted from now on` : `${of}${rate(now.rate)} requests/s, ${bytes(Math.round(now.bytes_in ?? 0))}/s in, ${bytes(Math.round(now.bytes_out ?? 0))}/s out`)
    const most = Math.max(0, ...now.points.map(([, each]) => each))
    fill(requestsLine, timeLine(now.points, { width: 480, height: 48, what: 'requests a second', stretches: true }), h('figcaption', {}, h('span', {}, '10 min ago'), h('span', {}, `highest ${rate(most)}/s`), h('span', {}, 'now')))
    if (apis.element.parentElement !== requests) fill(requests, requestsLine, apis.element)
    apis.show({ rows: now.apis, total: now.apis.length, from: 0 })
    setText(apis.range, now.more > 0 ? `the busiest ${number(now.apis.length)}, and ${number(now.more)} more` : counted(now.apis.length, 'API'))
    if (found.errors.length === 0) fill(errors, empty('No client has had an error', 'A request that the broker refuses is listed here, from when this page was first opened.'))
    else {
      if (failed.element.parentElement !== errors) fill(errors, failed.element)
      const shown = found.errors.slice(0, ERRORS)
      failed.show({ rows: shown, total: shown.length, from: 0 })
      setText(failed.range, `the latest ${counted(shown.length, 'error')}`)
    }
  })
  view.hear(() => '/api/stream/lag', (found) => {
    if (found.worst.length === 0) {
      fill(lag, empty('No groups yet', 'A consumer with a group.id makes one: ', h('code', {}, 'minibroker consume orders --group billing'), '.'))
      return
    }
    if (worst.element.parentElement !== lag) fill(lag, worst.element)
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
