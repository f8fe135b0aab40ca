/**
 * The panel of "Requests by connection": its filter, span, pause and table around the drawing.
 *
 * The rule: what is shown is in the address; a paused panel has the moment at its right edge there (`at`), and reads
 * what the console keeps of it, so that a link shows it again.
 */

import { counted, fill, h, setText } from './drawing.js'
import { filterOf } from './exchanges.js'
import { legend, RequestsDrawing, requestsTable } from './requests.js'
import { result, sentence } from './story.js'
import { live, panel } from '../view.js'

const SPANS = [1, 2, 10]
const USUAL_SPAN = 2
const ROWS = [8, 16, 40]
const ROWS_MS = 1_000
const STEP_SHARE = 0.5
const HELP = 'use api: client: topic: connection: slower: (ms), or one of parked, woken, expired, failed, empty'

export class RequestsPanel {
  /** @param {import('./inside.js').InsidePage} page */
  constructor(page) {
    this.page = page
    this.asTable = false
    this.rowsAt = -Infinity
    this.shownRows = ''
    this.drawing = new RequestsDrawing({
      sentence: (exchange) => sentence(exchange, page.words),
      address: (exchange) => page.addressOf(exchange.seq),
      select: (exchange) => page.choose(exchange.seq),
    })
    this.build()
  }

  build() {
    this.filter = h('input', {
      type: 'search',
      class: 'requests-filter',
      placeholder: 'api:fetch topic:orders parked',
      'aria-label': 'Filter requests',
      spellcheck: 'false',
      'data-filter': true,
      oninput: () => this.remember({ filter: this.filter.value }),
    })
    this.trouble = h('p', { class: 'problem', role: 'status', hidden: true })
    this.spans = h(
      'div',
      { class: 'segments', role: 'group', 'aria-label': 'Seconds shown' },
      SPANS.map((span) => button(`${span} s`, () => this.remember({ span: span === USUAL_SPAN ? null : span }))),
    )
    this.pause = button('', () => live.set(!live.paused), { 'aria-keyshortcuts': 'Space' })
    this.earlier = button('‹', () => this.move(-STEP_SHARE), { 'aria-label': 'Earlier', title: 'Earlier' })
    this.later = button('›', () => this.move(STEP_SHARE), { 'aria-label': 'Later', title: 'Later' })
    this.rows = h('button', { type: 'button', class: 'rows-button', hidden: true, onclick: () => this.moreRows() })
    this.box = h('div', { class: 'requests-box' }, this.drawing.element)
    this.table = h('div', {
      class: 'requests-scroll',
      tabindex: 0,
      role: 'region',
      'aria-label': 'Requests as a table',
      hidden: true,
    })
    this.legend = legend()
    const end = [this.filter, this.spans, this.earlier, this.later, this.pause]
    const body = h('div', { class: 'body' }, this.box, this.table, this.legend)
    this.element = panel('Requests by connection', { about: this.rows, end }, this.trouble, body)
    this.element.classList.add('requests-panel')
  }

  // Its state, which the address has

  /** Take the state from the address. */
  read() {
    const { query } = this.page.view
    const span = Number(query.get('span'))
    this.spanUs = (SPANS.includes(span) ? span : USUAL_SPAN) * 1_000_000
    const rows = Number(query.get('rows'))
    this.rowCount = ROWS.includes(rows) ? rows : ROWS[0]
    this.atUs = Number(query.get('at')) || null
    const filter = query.get('filter') ?? ''
    if (document.activeElement !== this.filter) this.filter.value = filter
    const { keep, unknown } = filterOf(filter)
    this.keep = keep
    this.trouble.hidden = !unknown.length
    setText(this.trouble, unknown.length ? `${unknown.join(', ')}: not a filter; ${HELP}` : '')
    SPANS.forEach((one, index) => {
      this.spans.children[index].setAttribute('aria-pressed', String(one * 1_000_000 === this.spanUs))
    })
    fill(this.pause, live.paused ? 'Go on' : 'Pause', h('kbd', {}, 'space'))
    this.earlier.hidden = this.later.hidden = !live.paused
    this.element.classList.toggle('paused', live.paused)
    this.rowsAt = -Infinity
    this.resize()
  }

  remember(changes) {
    this.page.view.remember(changes)
    this.read()
    this.show()
  }

  moreRows() {
    const next = ROWS[(ROWS.indexOf(this.rowCount) + 1) % ROWS.length]
    this.remember({ rows: next === ROWS[0] ? null : next })
  }

  /** Paused, or live again. */
  paused() {
    this.remember({ at: live.paused ? Math.round(this.page.clock.shownUs()) : null })
    if (!live.paused) this.asTable = false
    this.showTable()
    if (live.paused) void this.page.readKept()
  }

  /** To an earlier or a later moment. */
  async move(share) {
    const latest = this.page.clock.shownUs()
    const at = Math.min(Math.round((this.atUs ?? latest) + share * this.spanUs), latest || Infinity)
    this.remember({ at })
    await this.page.readKept()
  }

  /** The moment at the right edge. */
  get edgeUs() {
    return this.atUs ?? this.page.clock.shownUs()
  }

  // What it shows

  resize() {
    const width = Math.floor(this.box.clientWidth)
    const { drawing } = this
    if (width && (width !== drawing.width || this.spanUs !== drawing.spanUs)) drawing.setScale(width, this.spanUs)
  }

  /** Draw what is new; `anew` with the rows that suit it. */
  show({ anew = false } = {}) {
    if (anew) this.rowsAt = -Infinity
    const { drawing, page, edgeUs } = this
    if (this.asTable || !drawing.width || !edgeUs) return
    const exchanges = page.store.between(edgeUs - this.spanUs, edgeUs, this.keep)
    if (performance.now() - this.rowsAt > ROWS_MS) this.chooseRows(exchanges)
    drawing.selected = page.chosenSeq === null ? null : page.store.get(page.chosenSeq)
    drawing.turns = page.turns
    drawing.refresh(exchanges, edgeUs)
  }

  frame() {
    if (!this.asTable && this.drawing.width) this.drawing.setTime(this.edgeUs)
  }

  chooseRows(exchanges) {
    this.rowsAt = performance.now()
    const { store } = this.page
    const found = busiest(exchanges, this.rowCount, this.drawing.rows)
    const rows = found.shown.map((number) => store.connections.get(number))
    const names = rows.map(({ number, name, address }) => `${number} ${name} ${address}`).join('\n')
    if (names !== this.shownRows) {
      this.shownRows = names
      this.drawing.setRows(rows.map((row) => ({ ...row, address: shortAddress(row.address) })))
    }
    const isAll = rows.length === found.all
    this.rows.hidden = false
    setText(this.rows, isAll ? counted(found.all, 'connection') : `the ${rows.length} busiest of ${found.all}`)
    this.rows.disabled = isAll && this.rowCount === ROWS[0]
    this.rows.title = isAll ? '' : 'Show more'
  }

  /** The same as a table, or as a drawing again. */
  toggleTable() {
    this.asTable = !this.asTable
    if (this.asTable && !live.paused) live.set(true)
    this.showTable()
    if (this.asTable) this.table.focus()
    else this.show()
  }

  showTable() {
    this.table.hidden = !this.asTable
    this.box.hidden = this.legend.hidden = this.asTable
    if (!this.asTable) return
    const { page, edgeUs } = this
    const exchanges = page.store.between(edgeUs - this.spanUs, edgeUs, this.keep)
    const words = { ...page.words, address: (exchange) => page.addressOf(exchange.seq), result }
    fill(this.table, requestsTable(exchanges, words))
  }
}

/** A button with its act. */
export function button(words, act, attributes = {}) {
  return h('button', { type: 'button', class: 'button', onclick: act, ...attributes }, words)
}

/**
 * The `limit` busiest connections, in the order of their numbers; those shown before stay if they are nearly so. One
 * that waits counts for several requests: a consumer with nothing to read is worth a row.
 */
export function busiest(exchanges, limit, before = []) {
  const weights = new Map()
  for (const { connection, parkedUs } of exchanges) {
    weights.set(connection, (weights.get(connection) ?? 0) + (parkedUs === null ? 1 : 4))
  }
  const kept = new Set(before.map(({ number }) => number))
  const weight = (number) => weights.get(number) * (kept.has(number) ? 1.5 : 1)
  const numbers = [...weights.keys()].sort((one, other) => weight(other) - weight(one) || one - other)
  return { shown: numbers.slice(0, limit).sort((one, other) => one - other), all: numbers.length }
}

/** Of a client on this machine the port alone. */
function shortAddress(address) {
  return address.replace(/^(127\.0\.0\.1|\[::1\])(?=:)/, '')
}
