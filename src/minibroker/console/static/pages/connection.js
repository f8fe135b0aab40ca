// One connection of a minibroker: what it asks, the faults on it, and its transcript, field by field.

import { Failure } from '../api.js'
import { fill, h, setText } from '../dom.js'
import { bytes, counted, duration, localTime, number, time, visible, when } from '../format.js'
import { onEscape } from '../keys.js'
import { path, withQuery } from '../router.js'
import { Table } from '../table.js'
import { empty, panel, problem } from '../view.js'
import { setFacts } from './overview.js'

const REFRESH_MS = 1500
// The styles of a terminal, as `minibroker transcript` has them.
const STYLES = { bold: 'strong', cyan: 'name', dim: 'quiet', 'bold red': 'bad strong' }

/** @param {import('../view.js').View} view */
export function show(view) {
  const number_ = view.params.connection
  view.title(`Connection ${number_}`)
  const state = { open: view.query.get('open'), correlation: view.query.get('correlation'), full: view.query.get('full') === '1' }
  const name = h('span', {})
  const about = h('span', { class: 'about' })
  const facts = h('dl', { class: 'facts' })
  const now = h('div', { class: 'body' }, facts)
  const faults = h('div', { class: 'apart' })
  const lastError = h('span', { class: 'bad' })
  const asked = h('div', {})
  const list = h('div', {})
  const listAbout = h('span', {})
  const chooseOne = () => empty('Choose a request', 'Its frame and that of its response appear here, field by field.')
  const frames = h('div', { class: 'body' }, chooseOne())
  const framesAbout = h('span', {})
  const apis = new Table({
    label: 'Requests by API',
    noun: 'API',
    key: (row) => row.api,
    sort: { column: 'requests', descending: true },
    onSort: () => drawApis(),
    columns: [
      { name: 'api', label: 'API', head: true, sorts: true, kind: 'name', cell: (row) => row.api },
      { name: 'version', label: 'version', number: true, cell: (row) => String(row.version) },
      { name: 'requests', label: 'requests', number: true, sorts: true, cell: (row) => number(row.requests) },
      { name: 'bytes_in', label: 'bytes in', number: true, sorts: true, cell: (row) => bytes(row.bytes_in) },
      { name: 'bytes_out', label: 'bytes out', number: true, sorts: true, cell: (row) => bytes(row.bytes_out) },
    ],
  })
  const exchanges = new Table({
    label: 'Transcript',
    noun: 'request',
    key: (row) => String(row.at),
    sort: { column: '', descending: false },
    opens: (row) => addressOf(row.at),
    columns: [
      { name: 'time', label: 'time (UTC)', kind: 'time', cell: (row) => ({ text: when(row.time_ms), kind: 'plain', title: `${time(row.time_ms)} UTC, ${localTime(row.time_ms)}` }) },
      { name: 'request', label: 'request', head: true, cell: (row) => ({ text: `${row.api} v${row.version}`, href: addressOf(row.at), title: `correlation ${row.correlation}` }) },
      { name: 'about', label: 'about', kind: 'fill', cell: (row) => (row.errors.length > 0 ? { text: row.errors.join(', '), kind: row.outcome === 'no response' ? 'quiet' : 'bad', title: row.errors.join(', ') } : { text: row.about.join(', '), title: row.about.join(', ') }) },
      { name: 'bytes', label: 'bytes', number: true, kind: 'extra', cell: (row) => `${number(row.bytes_in)} → ${number(row.bytes_out)}` },
      { name: 'latency', label: 'ms', number: true, cell: (row) => (row.latency_ms === null ? '–' : row.latency_ms.toFixed(1)) },
    ],
  })
  const framesPanel = panel('Frames', { about: framesAbout, end: h('label', { class: 'check' }, fullBox(), 'in full') }, frames)
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, `Connection #${number_} `, name), about, h('div', { class: 'end' }, h('a', { class: 'button', href: withQuery('/inside', { filter: `connection:${number_}` }) }, 'Its requests in Inside'))),
    h('div', { class: 'panels roomy' }, panel('Now', { about: lastError }, now), panel('Requests by API', { about: 'counted while a page is open' }, asked)),
    faults,
    h('div', { class: 'transcript' }, panel('Transcript', { about: listAbout }, list), framesPanel),
  )
  /** @type {any} */
  let rows = []
  const drawApis = () => apis.showAll(rows, 0, (row) => row[apis.options.sort.column])

  view.every(REFRESH_MS, async () => {
    const found = await view.get(path('api', 'clients', number_)).catch(withoutControl)
    if (found === null) return
    const row = found.connection
    if (row === null) {
      setText(about, 'has ended')
      fill(now, empty('This connection has ended', 'Its transcript stays, if the broker records one. ', h('a', { href: '/clients' }, 'Clients'), ' lists those that are open.'))
      fill(asked, empty('Nothing is counted any more'))
      return
    }
    setText(name, visible(row.client_id ?? ''))
    setText(about, [row.address, row.listener, row.principal, row.encrypted].filter((each) => each).map(visible).join(', '))
    setFacts(facts, [
      ['now', row.in_hand ? `${row.in_hand.api}, ${duration(row.in_hand.for_us / 1e6)}` : 'idle'],
      ['last request', `${duration(row.idle_ms / 1000)} ago`],
      ['throttled', row.throttled_ms > 0 ? duration(row.throttled_ms / 1000) : 'no'],
      ['errors', number(row.errors), row.errors > 0],
    ])
    setText(lastError, row.last_error === null ? '' : `last error ${row.last_error}`)
    fill(faults, found.faults.length > 0 && faultsPanel(found.faults))
    rows = Object.entries(row.requests).map(([api, [version, requests, bytes_in, bytes_out]]) => ({ api, version, requests, bytes_in, bytes_out }))
    if (rows.length === 0) fill(asked, empty('No requests yet', 'They are counted from when a page was opened.'))
    else {
      if (apis.element.parentElement !== asked) fill(asked, apis.element)
      drawApis()
    }
  })

  view.every(REFRESH_MS, async () => {
    const found = await view.get(path('api', 'clients', number_, 'transcript')).catch(withoutControl)
    if (found === null) return
    if (found.path === null) {
      setText(listAbout, '')
      framesPanel.hidden = true
      fill(list, empty('The broker records no transcript', 'Start it with one: ', h('code', {}, 'minibroker serve --console --transcript FILE'), '. Then each request and response is here, field by field.'))
      return
    }
    const share = found.size === 0 ? 100 : Math.floor((100 * found.read) / found.size)
    setText(listAbout, [visible(found.path), share < 100 ? `${share} % read` : '', found.is_recording ? '' : 'the recording has ended'].filter((each) => each).join(', '))
    if (found.rows.length === 0) fill(list, empty(share < 100 ? 'Reading the transcript …' : 'It has no request of this connection', 'A request appears when it is answered.'))
    else {
      if (exchanges.element.parentElement !== list) fill(list, exchanges.element)
      exchanges.show({ rows: found.rows, total: found.rows.length, from: 0 })
      setText(exchanges.range, `the latest ${counted(found.rows.length, 'request')}`)
    }
    const named = state.correlation === null ? undefined : found.rows.find((row) => String(row.correlation) === state.correlation)
    if (named !== undefined && state.open === null) choose(String(named.at))
  })
  view.main.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('.transcript a[data-row-link]') : null
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    choose(new URLSearchParams(link.getAttribute('href')?.split('?')[1]).get('open'))
  }, { signal: view.signal })
  onEscape(view, () => {
    if (state.open === null) return false
    Object.assign(state, { open: null, correlation: null })
    view.remember({ open: null, correlation: null })
    setText(framesAbout, '')
    fill(frames, chooseOne())
    return true
  })
  if (state.open !== null) void showFrames()

  function addressOf(at) {
    return withQuery(path('clients', number_), { open: at, full: state.full ? 1 : null })
  }

  function choose(at) {
    Object.assign(state, { open: at, correlation: null })
    view.remember({ open: at, correlation: null })
    void showFrames()
  }

  function fullBox() {
    const box = h('input', { type: 'checkbox', onchange: () => { state.full = box.checked; view.remember({ full: state.full ? 1 : null }); if (state.open !== null) void showFrames() } })
    box.checked = state.full
    return box
  }

  async function showFrames() {
    const at = state.open
    try {
      const { lines, is_cut: isCut } = await view.get(withQuery(path('api', 'clients', number_, 'transcript', at), { full: state.full ? 1 : null }))
      if (at !== state.open) return
      const parts = lines.flatMap((line) => [...line.map(([text, style]) => h('span', { class: STYLES[/** @type {keyof typeof STYLES} */ (style)] ?? null }, visible(text))), '\n'])
      setText(framesAbout, isCut ? `the first ${counted(lines.length, 'line')}` : '')
      fill(frames, h('pre', { class: 'frames', tabindex: 0, 'aria-label': 'Request and response' }, parts))
    } catch (error) {
      if (!view.signal.aborted && at === state.open) fill(frames, problem(/** @type {Error} */ (error)))
    }
  }

  function withoutControl(error) {
    if (!(error instanceof Failure) || error.status !== 409) throw error
    fill(view.main, h('div', { class: 'head' }, h('h1', {}, `Connection #${visible(number_)}`)), panel('This needs minibroker with --control', {}, empty('Kafka’s protocol has no list of connections', 'A minibroker shows them, and what each has asked: ', h('code', {}, 'minibroker serve --console --transcript FILE'), '.')))
    return null
  }
}

function faultsPanel(faults) {
  const words = (fault) => Object.entries(fault).filter(([, value]) => value !== null && typeof value !== 'object').map(([name, value]) => `${name} ${value}`).join(', ')
  return panel('Faults on it', { end: h('a', { href: '/inside' }, 'Lift them in Inside') }, h('ul', { class: 'body plain' }, faults.map((fault) => h('li', {}, visible(words(fault))))))
}
