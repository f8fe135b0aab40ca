// Messages of a topic: a page of them from anywhere, a search, the newest as they come. All of it is in the address.

import { Failure, stream } from '../api.js'
import { fill, h, setText } from '../dom.js'
import { counted, localTime, number, time, visible, visibleWords } from '../format.js'
import { onEscape } from '../keys.js'
import { path, withQuery } from '../router.js'
import { compared } from '../table.js'
import { empty, live, panel, problem } from '../view.js'
import { downloadFrom } from './download.js'
import { showMessage } from './message.js'
import { produceTo } from './produce.js'

const KEPT_WHILE_LIVE = 500
const PARTITIONS_LISTED = 500
const LONGEST_CURSOR = 1500 // characters
const SIZES = ['50', '200', '500'] // messages of a page
const WHERE = { newest: 'newest', beginning: 'beginning', offset: 'offset', time: 'time' }

/**
 * @param {import('../view.js').View} view
 * @param {string} topic
 * @param {Element} place
 */
export async function showMessages(view, topic, place) {
  const state = {
    partition: view.query.get('partition') ?? '',
    at: view.query.get('at') ?? 'newest',
    in: view.query.get('in') ?? 'any',
    op: view.query.get('op') ?? 'contains',
    text: view.query.get('text') ?? '',
    header: view.query.get('header') ?? '',
    until: view.query.get('until') ?? '',
    committed: view.query.get('committed') ?? '',
    cursor: view.query.get('cursor') ?? history.state?.cursor ?? '',
    open: view.query.get('open') ?? '',
    live: view.query.get('live') ?? '',
    n: SIZES.find((each) => each === view.query.get('n')) ?? SIZES[0],
  }
  const { partitions } = await view.until(() => view.get(`${path('api', 'topics', topic)}?n=1`))
  const table = new MessageTable(view, topic, (open) => {
    if (open === state.open) return
    state.open = open
    remember()
  })
  const about = h('span', { role: 'status' })
  const foot = h('div', { class: 'pager' })
  const body = h('div', {})
  let reading = new AbortController()

  // What to read from where
  const partition = h('select', { 'aria-label': 'Partition', onchange: () => set({ partition: partition.value, cursor: '' }) }, h('option', { value: '' }, 'all partitions'), partitionOptions(partitions))
  partition.value = state.partition
  const kind = kindOf(state.at)
  const where = h('select', { 'aria-label': 'Read from', onchange: () => chooseWhere() }, Object.entries(WHERE).map(([value, label]) => h('option', { value }, label)))
  where.value = kind
  const at = h('input', { 'aria-label': 'Offset or time', size: 22, value: kind === 'offset' ? state.at : kind === 'time' ? state.at.slice(1) : '', spellcheck: 'false', onchange: () => chooseWhere() })

  // What to look for
  const field = h('select', { 'aria-label': 'Search in', onchange: () => search() }, [['any', 'key, value, headers'], ['key', 'key'], ['value', 'value'], ['header', 'header']].map(([value, label]) => h('option', { value }, label)))
  field.value = state.in
  const operator = h('select', { 'aria-label': 'How', onchange: () => search() }, ['contains', 'is', 'begins'].map((value) => h('option', { value }, value === 'begins' ? 'begins with' : value)))
  operator.value = state.op
  const header = h('input', { 'aria-label': 'Name of the header', placeholder: 'name of the header', size: 14, value: state.header, onchange: () => search(), spellcheck: 'false' })
  const text = h('input', { type: 'search', 'data-filter': true, 'aria-label': 'Text to look for', placeholder: 'text, or 0x… for bytes', size: 22, value: state.text, spellcheck: 'false', autocomplete: 'off' })
  const until = h('input', { 'aria-label': 'Until this time', placeholder: 'until: 2013-01-01T06:00Z', size: 20, value: state.until, onchange: () => search(), spellcheck: 'false' })
  const committed = h('input', { type: 'checkbox', onchange: () => set({ committed: committed.checked ? '1' : '', cursor: '' }) })
  committed.checked = state.committed === '1'
  const form = h(
    'form',
    { class: 'toolbar body', role: 'search', 'aria-label': 'Messages', onsubmit: (event) => { event.preventDefault(); search() } },
    h('span', { class: 'field' }, 'from', where, at),
    partition,
    h('span', { class: 'field' }, 'where', field, header, operator, text),
    until,
    h('label', { class: 'check' }, committed, 'committed only'),
    h('button', { class: 'button' }, 'Search'),
  )
  const follow = h('button', { type: 'button', class: 'button', 'aria-pressed': 'false', onclick: () => set({ live: state.live ? '' : '1', cursor: '' }) }, 'Live')
  const produce = view.forChanges(h('button', { type: 'button', class: 'button main', onclick: () => produceTo(topic, partitions, {}, () => { if (!state.live) read() }) }, 'Produce'))
  fill(place, panel('Messages', { about, end: [h('div', { class: 'segments' }, follow), produce] }, form, body, foot))
  arrange()
  live.listeners.add(onPause)
  view.signal.addEventListener('abort', () => { live.listeners.delete(onPause); reading.abort() })
  document.addEventListener('visibilitychange', onPause, { signal: view.signal })
  onEscape(view, () => table.closeOpened())
  start()

  function arrange() {
    at.hidden = where.value !== 'offset' && where.value !== 'time'
    at.placeholder = where.value === 'time' ? '2013-01-01T06:00:00Z' : '42, -5 or +5'
    header.hidden = field.value !== 'header'
    follow.setAttribute('aria-pressed', state.live ? 'true' : 'false')
  }

  function chooseWhere() {
    arrange()
    if (!at.hidden && at.value.trim() === '') {
      at.focus()
      return
    }
    set({ at: where.value === 'time' ? `@${at.value.trim()}` : where.value === 'offset' ? at.value.trim() : where.value, cursor: '', live: '' })
  }

  function search() {
    arrange()
    set({ in: field.value, op: operator.value, text: text.value, header: field.value === 'header' ? header.value : '', until: until.value.trim(), cursor: '' })
  }

  function set(changes) {
    Object.assign(state, changes, { open: '' })
    remember()
    arrange()
    start()
  }

  /** Each state is a step that Back undoes; a place in very many partitions is too long for an address. */
  function remember() {
    const isLong = state.cursor.length > LONGEST_CURSOR
    view.remember({
      ...state,
      at: state.at === 'newest' ? null : state.at,
      in: state.in === 'any' ? null : state.in,
      op: state.op === 'contains' ? null : state.op,
      n: state.n === SIZES[0] ? null : state.n,
      cursor: isLong ? null : state.cursor,
    }, true)
    if (isLong) history.replaceState({ cursor: state.cursor }, '')
  }

  function query() {
    const { open, live: isLive, ...rest } = state
    return { ...rest, n: state.n === SIZES[0] ? '' : state.n }
  }

  function start() {
    reading.abort()
    reading = new AbortController()
    if (state.live) tail(reading.signal, '')
    else read()
  }

  async function read() {
    const { signal } = reading
    setText(about, 'reading …')
    try {
      show(await view.until(() => view.get(withQuery(path('api', 'topics', topic, 'messages'), query())), signal))
    } catch (error) {
      if (signal.aborted || view.signal.aborted) return
      if (!(error instanceof Failure)) throw error
      setText(about, '')
      fill(body, problem(error))
      fill(foot)
    }
  }

  function show(page) {
    const isBackwards = state.at === 'newest'
    setText(about, page.rows.length === 0 ? '' : `${number(page.rows.length)} of ${counted(page.total, 'message')}${isSearch() ? `, found in ${number(page.scanned)}` : ''}`)
    if (page.rows.length > 0) {
      table.show(page.rows, state.open)
      fill(body, unreadable(page), table.element, page.state === 'failed' && problem(new Error(page.failure)))
    } else fill(body, unreadable(page), nothing(page))
    const more = h('button', { type: 'button', class: 'button', onclick: () => set({ cursor: page.cursor }) }, page.state === 'stopped' ? 'Go on' : isBackwards ? 'Older' : 'Later')
    more.hidden = page.cursor === ''
    const first = h('button', { type: 'button', class: 'button', onclick: () => set({ cursor: '' }) }, isBackwards ? 'Newest' : 'From the start')
    first.hidden = state.cursor === ''
    const end = endOf(page, isBackwards)
    const save = h('button', { type: 'button', class: 'button end', onclick: () => downloadFrom(topic, query(), page) }, 'Download')
    save.hidden = page.rows.length === 0 && page.cursor === ''
    const size = h('select', { 'aria-label': 'Messages of a page', onchange: () => set({ n: size.value, cursor: '' }) }, SIZES.map((each) => h('option', { value: each }, `${each} a page`)))
    size.value = state.n
    size.hidden = page.total <= Number(SIZES[0])
    fill(foot, end !== '' && h('span', {}, end), first, more, size, page.without_leader > 0 && h('span', { class: 'bad' }, `${counted(page.without_leader, 'partition')} without a leader`), save)
  }

  function unreadable(page) {
    return page.unreadable.map((each) => problem(new Error(each)))
  }

  function nothing(page) {
    if (page.state === 'failed') return problem(new Error(page.failure))
    if (page.total === 0) {
      return empty(
        'There are no messages here',
        'Produce one here, or on the command line: ',
        h('code', {}, `echo hello | minibroker produce ${visible(topic)}`),
        '. Live shows those that come.',
      )
    }
    if (page.state === 'stopped') return empty('Nothing found yet', `${number(page.scanned)} messages were read; there are more. Go on below.`)
    if (page.unreadable.length > 0) return empty('No other message matches', 'The rest was searched.')
    if (isSearch()) return empty('No message matches', `${counted(page.scanned, 'message')} ${page.scanned === 1 ? 'was' : 'were'} searched: all from there on. Search for a shorter text, or in another field.`)
    const from = kindOf(state.at) === 'time' ? 'Every message is older than that time.' : kindOf(state.at) === 'offset' ? 'The topic ends before that offset.' : ''
    return empty('There is no message from there on', from, ' Read from the newest, or from the beginning.')
  }

  /** Whether only some messages are wanted of those that are read. */
  function isSearch() {
    return [state.text, state.header, state.until].some((each) => each !== '')
  }

  async function tail(signal, cursor) {
    if (live.paused || document.hidden) return
    setText(about, cursor === '' ? 'live: looking for the end of the topic' : 'live: waiting for messages')
    if (cursor === '') table.clear()
    const hint = h('p', { class: 'empty' })
    const lost = h('div', {})
    fill(body, lost, table.element, hint)
    fill(foot)
    let left = 0
    let seen = 0
    const failures = h('span', { class: 'bad' })
    let last = cursor
    await stream(
      () => withQuery(path('api', 'stream', 'topics', topic), { ...query(), at: null, cursor: last }),
      {
        on: ({ name, data }) => {
          if (name === 'failed') {
            setText(failures, data.error)
            return
          }
          setText(failures, '')
          setText(hint, 'Messages appear here as they come. Space pauses.') // not before it is known from where on
          last = data.cursor
          lost.append(...unreadable(data))
          seen += data.rows.length + data.left_out
          left += data.left_out
          if (data.rows.length > 0) {
            hint.remove()
            table.add(data.rows, KEPT_WHILE_LIVE)
          }
          setText(about, seen === 0 ? 'live: waiting for messages' : `live: ${counted(seen, 'message')}${left > 0 ? `, ${number(left)} of them counted only` : ''}`)
          fill(foot, failures, h('span', {}, left > 0 ? 'Fifty a second are shown; the rest is counted.' : ''))
        },
        failed: (failure) => { fill(foot, problem(failure)) },
      },
      AbortSignal.any([signal, view.signal]),
    )
    resume = last
  }

  let resume = ''
  function onPause() {
    if (!state.live) return
    reading.abort()
    reading = new AbortController()
    if (live.paused || document.hidden) setText(about, `${about.textContent?.replace(/^(live|paused)/, 'paused') ?? ''}`)
    else tail(reading.signal, resume)
  }
}

function kindOf(at) {
  if (at in WHERE) return at
  return at.startsWith('@') ? 'time' : 'offset'
}

function partitionOptions(count) {
  return Array.from({ length: Math.min(count, PARTITIONS_LISTED) }, (_, at) => h('option', { value: at }, `partition ${at}`))
}

function endOf(page, isBackwards) {
  if (page.state === 'stopped') return `Stopped after ${counted(page.scanned, 'message')} were read.`
  if (page.state === 'end' && page.rows.length > 0) return isBackwards ? 'These are the oldest.' : 'These are the newest.'
  return ''
}

/** Rows of messages; each opens below itself. */
class MessageTable {
  /** @type {Map<string, {row: HTMLElement, detail: HTMLElement|null, data: any}>} */
  #rows = new Map()

  constructor(view, topic, onOpen) {
    this.view = view
    this.topic = topic
    this.onOpen = onOpen
    const heads = [['time (UTC)', ''], ['partition', 'number'], ['offset', 'number'], ['key', ''], ['value', 'fill'], ['headers', 'number'], ['bytes', 'number']]
    this.body = h('tbody')
    this.element = h('div', { class: 'scroll' }, h('table', { 'aria-label': 'Messages', class: 'rows messages' }, h('thead', {}, h('tr', {}, heads.map(([label, kind]) => h('th', { scope: 'col', class: kind || null }, label)))), this.body))
  }

  clear() {
    this.#rows.clear()
    fill(this.body)
  }

  show(rows, open) {
    this.clear()
    for (const row of rows) this.body.append(this.#made(row))
    if (open) this.toggle(open)
  }

  /** Newest at the top, so that what is read stays in sight. */
  add(rows, most) {
    for (const row of [...rows].sort((a, b) => compared(a.timestamp, b.timestamp))) {
      if (!this.#rows.has(keyOf(row))) this.body.prepend(this.#made(row))
    }
    for (const [key, entry] of this.#rows) {
      if (this.#rows.size <= most) break
      entry.row.remove()
      entry.detail?.remove()
      this.#rows.delete(key)
    }
  }

  #made(data) {
    const key = keyOf(data)
    const open = h('button', { type: 'button', class: 'opener', 'data-row-link': '', 'aria-expanded': 'false', 'aria-label': `Message ${data.partition}:${number(data.offset)}`, onclick: () => this.toggle(key) }, number(data.offset))
    const row = h(
      'tr',
      { 'data-opens': '', onclick: (event) => { if (!event.target.closest('button, a') && String(getSelection()) === '') this.toggle(key) } },
      cell('time', 'time', { title: localTime(data.timestamp) }, time(data.timestamp)),
      cell('partition', 'number', {}, String(data.partition)),
      h('th', { scope: 'row', class: 'number', 'data-label': 'offset' }, open),
      cell('key', 'clip mono', {}, clamped(data.key)),
      cell('value', 'fill mono', {}, clamped(data.value)),
      cell('headers', 'number', {}, data.headers === 0 ? '' : String(data.headers)),
      cell('bytes', 'number', {}, number(data.size)),
    )
    this.#rows.set(key, { row, detail: null, data })
    return row
  }

  /** Closes the opened row that has the focus, else the last one that is open; whether there was one. */
  closeOpened() {
    const opened = [...this.#rows].filter(([, { detail }]) => detail !== null)
    const focused = opened.find(([, { row, detail }]) => row.contains(document.activeElement) || detail?.contains(document.activeElement))
    const [key, entry] = focused ?? opened.at(-1) ?? []
    if (key === undefined || entry === undefined) return false
    this.toggle(key)
    const opener = entry.row.querySelector('.opener')
    if (opener instanceof HTMLElement) opener.focus()
    return true
  }

  /** Opens a row, or closes it. @param {string} key */
  toggle(key) {
    const entry = this.#rows.get(key)
    if (entry === undefined) return
    const button = /** @type {HTMLElement} */ (entry.row.querySelector('.opener'))
    if (entry.detail !== null) {
      entry.detail.remove()
      entry.detail = null
      button.setAttribute('aria-expanded', 'false')
      this.onOpen('')
      return
    }
    const cell = h('td', { colspan: 7 })
    entry.detail = h('tr', { class: 'detail' }, cell)
    entry.row.after(entry.detail)
    button.setAttribute('aria-expanded', 'true')
    this.onOpen(key)
    void showMessage(this.view, this.topic, entry.data, cell)
  }
}

const cell = (label, kind, attributes, content) => h('td', { class: kind || null, 'data-label': label, ...attributes }, content)

const clamped = (data) => h('span', { class: 'clamped' }, preview(data))

const keyOf = (row) => `${row.partition}:${row.offset}`

/** The beginning of a key or value, on one line. @param {{text?: string, hex?: string, size: number}|null} data */
export function preview(data) {
  if (data === null) return h('span', { class: 'dim' }, 'null')
  if (data.size === 0) return h('span', { class: 'dim' }, 'empty')
  if (data.hex !== undefined) return h('span', { class: 'bytes' }, `0x${data.hex}`)
  return visibleWords(data.text ?? '')
}
