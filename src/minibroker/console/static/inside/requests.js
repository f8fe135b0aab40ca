/**
 * "Requests by connection": a row for each connection, time to the right, the right edge is now.
 *
 * The rule: a bar is drawn once, when its exchange is new or has changed; a frame sets one transform and nothing else.
 * Hue is the kind of API, shape the stage, and each bar is a link whose label is a sentence.
 */

import { briefMs, counted, h, label, number, s, textWidth } from './drawing.js'

const LABELS = 132
const NUMBER_END = 22
const NUMBER_AS_WIDE = 99
const AXIS = 30
const ROW = 36
const FOOT = 24
const BAR = 16
const BAND = 9
const LEAST = 3
const FRAME = 23
const AROUND = 4
const RIGHT = 14
/** A plain bar this close to the one before it is counted with that one. */
const MERGED_PX = 2
const LINES = 8
const LEAST_AXIS = 56 // px between two times on the axis
/** The origin of the drawing's x moves on before its numbers become too large for the float of an SVG length. */
const ORIGIN_US = 60_000_000

/** The rows and bars of one panel; the caller gives it exchanges and the time. */
export class RequestsDrawing {
  /**
   * @param {{sentence: function(object): string, address: function(object): string,
   *          select: function(object): void}} its what a bar's label says, its link, and what a click does
   */
  constructor({ sentence, address, select }) {
    this.sentence = sentence
    this.address = address
    this.select = select
    this.rows = []
    this.rowOf = new Map()
    this.drawn = new Map()
    this.selected = null
    this.spanUs = 2_000_000
    this.nowUs = 0
    this.originUs = 0
    this.width = 0
    this.focused = null
    this.still = s('g', { class: 'still' })
    this.shade = s('rect', { class: 'shade', y: AXIS - 5, width: 0 })
    this.wakes = s('g', { class: 'wakes' })
    this.bars = s('g', { class: 'bars' })
    this.turns = []
    this.turnMarks = s('g')
    this.frame = s('rect', { class: 'frame', height: FRAME, rx: 3 })
    this.length = label(0, 0, '', { class: 'length', 'text-anchor': 'middle' })
    this.moving = s('g', {}, this.shade, this.turnMarks, this.wakes, this.bars, this.frame, this.length)
    this.clip = s('rect', { x: LABELS, y: 0 })
    this.labels = s('g', { class: 'labels' })
    this.element = s(
      'svg',
      { class: 'requests', role: 'group', 'aria-label': 'Requests by connection; arrows move between them' },
      s('defs', {}, s('clipPath', { id: 'requests-time' }, this.clip)),
      this.still,
      s('g', { 'clip-path': 'url(#requests-time)' }, this.moving),
      this.labels,
    )
    this.element.addEventListener('click', (event) => this.clicked(event))
    this.element.addEventListener('keydown', (event) => this.pressed(event))
  }

  get right() {
    return this.width - RIGHT
  }

  get pxPerUs() {
    return (this.right - LABELS) / this.spanUs
  }

  x(us) {
    return (us - this.originUs) * this.pxPerUs
  }

  /** Show these connections, in this order: `{number, name, address}`. */
  setRows(rows) {
    this.rows = rows
    this.rowOf = new Map(rows.map((row, index) => [row.number, index]))
    this.clear()
  }

  /** Take another width or span of time. */
  setScale(width, spanUs) {
    this.width = width
    this.spanUs = spanUs
    this.clear()
  }

  /** Forget all bars; the next `refresh` draws them again. */
  clear() {
    this.originUs = this.nowUs
    for (const row of this.rows) {
      row.end = -Infinity
      row.last = null
    }
    this.drawn.clear()
    this.bars.replaceChildren()
    this.wakes.replaceChildren()
    this.drawStill()
  }

  drawStill() {
    const bottom = AXIS + ROW * this.rows.length
    const height = bottom + FOOT
    this.element.setAttribute('viewBox', `0 0 ${this.width} ${height}`)
    this.element.setAttribute('width', this.width)
    this.element.setAttribute('height', height)
    this.clip.setAttribute('width', Math.max(this.right - LABELS, 0))
    this.clip.setAttribute('height', height)
    this.shade.setAttribute('height', bottom - AXIS + 5)
    this.length.setAttribute('y', bottom + 15)
    const parts = []
    const stride = (2 * (this.right - LABELS)) / LINES < LEAST_AXIS ? 4 : 2
    for (let line = 0; line < LINES; line++) {
      const x = LABELS + ((this.right - LABELS) * line) / LINES
      parts.push(s('line', { class: line % 2 ? 'fine' : 'coarse', x1: x, x2: x, y1: AXIS - 5, y2: bottom }))
      if (line % stride === 0) {
        const seconds = (this.spanUs * (1 - line / LINES)) / 1_000_000
        const words = `−${seconds.toFixed(this.spanUs < 2_000_000 ? 2 : 1)} s`
        parts.push(label(x, 15, words, { class: 'axis', 'text-anchor': line ? 'middle' : 'start' }))
      }
    }
    const longest = Math.max(0, ...this.rows.map(({ number: each }) => each))
    const numberEnd = longest > NUMBER_AS_WIDE ? textWidth(`#${longest}`, { mono: true }) + 4 : NUMBER_END
    const nameAt = numberEnd + 8
    this.rows.forEach((row, index) => {
      const y = AXIS + ROW * index
      parts.push(s('line', { class: 'fine', x1: 0, x2: this.right, y1: y, y2: y }))
      parts.push(label(numberEnd, y + 16, `#${row.number}`, { class: 'number', 'text-anchor': 'end' }))
      parts.push(label(nameAt, y + 16, shortened(row.name, LABELS - nameAt - 4), { class: 'name' }, s('title', {}, row.name)))
      parts.push(label(nameAt, y + 30, shortened(row.address, LABELS - nameAt - 4), { class: 'address' }))
    })
    parts.push(label(this.right, 15, 'now', { class: 'axis', 'text-anchor': 'end' }))
    this.still.replaceChildren(...parts)
  }

  /**
   * Draw what is new or has changed among `exchanges`, oldest first, and remove what has left on the left.
   * @param {Iterable<object>} exchanges those of the span, of `store.between`
   */
  refresh(exchanges, nowUs) {
    if (Math.abs(nowUs - this.originUs) > ORIGIN_US) {
      this.nowUs = nowUs
      this.clear()
    }
    this.nowUs = nowUs
    const begin = nowUs - this.spanUs
    const open = new Set()
    for (const exchange of exchanges) {
      if (exchange.isOpen) open.add(exchange.seq)
      const before = this.drawn.get(exchange.seq)
      if (before && before.exchange.outcome === exchange.outcome) continue
      const row = this.rowOf.get(exchange.connection)
      if (row !== undefined) this.draw(exchange, row, before)
    }
    for (const [seq, { exchange, link, wakes }] of this.drawn) {
      if (exchange.isOpen ? open.has(seq) : exchange.endUs >= begin) continue
      if (link?.contains(document.activeElement)) this.focusBar(this.neighbour(exchange, 'ArrowRight'))
      link?.remove()
      for (const line of wakes) line.remove()
      this.drawn.delete(seq)
    }
    this.drawTurns()
    this.drawLabels()
    this.drawSelected()
    this.keepTabStop()
    this.setTime(nowUs)
  }

  /** One frame: time moves. */
  setTime(nowUs) {
    this.nowUs = nowUs
    this.moving.setAttribute('transform', `translate(${(this.right - this.x(nowUs)).toFixed(2)} 0)`)
  }

  draw(exchange, rowIndex, before) {
    before?.link?.remove()
    for (const line of before?.wakes ?? []) line.remove()
    const row = this.rows[rowIndex]
    const x = this.x(exchange.arrivedUs)
    const isCovered = x - row.end < MERGED_PX && row.last?.exchange.api === exchange.api && isPlain(row.last.exchange)
    if (isPlain(exchange) && isCovered && exchange.seq !== this.selected?.seq) {
      this.count(row.last)
      this.drawn.set(exchange.seq, { exchange, link: null, wakes: [] })
      return
    }
    const middle = AXIS + ROW * rowIndex + ROW / 2
    const link = s('a', {
      href: this.address(exchange),
      class: `exchange kind-${exchange.kind}${exchange.error ? ' failed' : ''}`,
      'aria-label': this.sentence(exchange),
      tabindex: -1,
      'data-seq': exchange.seq,
    })
    const end = this.stages(link, exchange, x, middle)
    link.prepend(s('rect', { class: 'hit', x: x - 3, y: middle - 12, width: Math.max(end - x, LEAST) + 6, height: 24 }))
    row.end = end
    // In the order of time, so that what is read aloud is, too.
    this.bars.append(link)
    row.last = { exchange, link, wakes: [] }
    this.drawn.set(exchange.seq, row.last)
    this.drawWakes(exchange)
  }

  /** One more that lies under a bar. */
  count(drawn) {
    drawn.more = (drawn.more ?? 0) + 1
    drawn.link.setAttribute(
      'aria-label',
      `${this.sentence(drawn.exchange)}; and ${number(drawn.more)} more at its place`,
    )
  }

  /** The lines between this exchange and the one that woke it, or those that it woke: the second to come draws one. */
  drawWakes(exchange) {
    const waker = exchange.wokenBy === null ? null : this.drawn.get(exchange.wokenBy)?.exchange
    if (waker) this.drawWake(exchange, waker)
    for (const seq of exchange.woke) {
      const woken = this.drawn.get(seq)?.exchange
      if (woken?.isWoken) this.drawWake(woken, exchange)
    }
  }

  drawWake(woken, waker) {
    const [to, from] = [woken, waker].map(({ connection }) => this.rowOf.get(connection))
    const drawn = this.drawn.get(woken.seq)
    if (to === from || drawn.wakes.length) return
    const x = this.x(woken.wokenUs)
    const y1 = AXIS + ROW * from + ROW / 2 + (from < to ? BAR / 2 : -BAR / 2)
    const y2 = AXIS + ROW * to + ROW / 2
    const line = s('line', { class: 'wake', x1: x, x2: x, y1, y2, 'data-seq': woken.seq })
    this.wakes.append(line)
    drawn.wakes.push(line)
  }

  /** The shapes of one exchange; returns the x of its end. */
  stages(link, exchange, x, middle) {
    const { parkedUs, wokenUs, answeredUs, sentUs, kind } = exchange
    const solid = (from, to) => {
      const width = Math.max(to - from, LEAST)
      link.append(s('rect', { class: 'working', x: from, y: middle - BAR / 2, width, height: BAR }))
      return from + width
    }
    let end
    if (parkedUs === null) {
      end = solid(x, this.x(answeredUs ?? exchange.handledUs ?? exchange.arrivedUs))
    } else {
      const until = wokenUs === null ? this.x(exchange.arrivedUs + 100 * this.spanUs) : this.x(wokenUs)
      link.append(s('rect', { class: 'band', x, y: middle - BAND / 2, width: Math.max(until - x, 1), height: BAND }))
      solid(x, this.x(parkedUs))
      end = until
      if (wokenUs !== null) end = solid(until, this.x(answeredUs ?? wokenUs))
    }
    if (answeredUs !== null && (sentUs !== null || exchange.isOpen)) {
      const to = this.x(sentUs ?? exchange.arrivedUs + 100 * this.spanUs)
      if (to - end > LEAST) {
        const place = { x: end, y: middle - BAR / 2, width: to - end, height: BAR }
        link.append(s('rect', { class: 'sending', ...place }))
        link.append(s('rect', { class: 'sending-hatch', fill: `url(#hatch-${kind})`, ...place }))
        end = to
      }
    }
    this.mark(link, exchange, x, middle)
    return end
  }

  mark(link, exchange, x, middle) {
    const { wokenUs } = exchange
    if (exchange.isWoken) {
      link.append(s('circle', { class: 'dot', cx: this.x(wokenUs), cy: middle, r: 4 }))
    } else if (exchange.isExpired && wokenUs !== null) {
      const at = this.x(wokenUs)
      link.append(
        s('rect', {
          class: 'diamond',
          x: at - 5,
          y: middle - 3.5,
          width: 7,
          height: 7,
          transform: `rotate(45 ${at - 1.5} ${middle})`,
        }),
      )
    }
    if (exchange.error) {
      const at = x + 1.5
      const cross = `M${at - 4} ${middle - 4}l8 8m0 -8l-8 8`
      link.append(s('path', { class: 'cross-halo', d: cross }), s('path', { class: 'cross', d: cross }))
      const words = exchange.error
      const row = this.rows[this.rowOf.get(exchange.connection)]
      if (x - 8 - textWidth(words) > row.end) {
        link.append(label(at - 9, middle + 4, words, { class: 'error', 'text-anchor': 'end' }))
      }
    }
  }

  /** The moments at which a test turned the broker's clock. */
  drawTurns() {
    const bottom = AXIS + ROW * this.rows.length
    const shown = this.turns.filter(([us]) => us >= this.nowUs - this.spanUs)
    const parts = shown.flatMap(([us, ms]) => {
      const x = this.x(us)
      const words = `clock +${number(ms / 1000)} s`
      return [
        s('line', { class: 'turn', x1: x, x2: x, y1: AXIS - 5, y2: bottom }),
        label(x, bottom + 15, words, { class: 'turned', 'text-anchor': 'middle' }),
      ]
    })
    this.turnMarks.replaceChildren(...parts)
  }

  /** At the right edge: how long the parked ones wait, of how long at most. */
  drawLabels() {
    const parts = [
      s('line', { class: 'now', x1: this.right, x2: this.right, y1: AXIS - 8, y2: AXIS + ROW * this.rows.length }),
    ]
    parts.push(s('path', { class: 'now-head', d: `M${this.right - 4.5} ${AXIS - 10}h9l-4.5 6z` }))
    const waiting = new Map()
    for (const { exchange } of this.drawn.values()) {
      if (isParkedAt(exchange, this.nowUs)) waiting.set(exchange.connection, exchange)
    }
    for (const [connection, exchange] of waiting) {
      const y = AXIS + ROW * this.rowOf.get(connection)
      const waited = Math.max(Math.round((this.nowUs - exchange.arrivedUs) / 1000), 0)
      const words =
        exchange.maxWaitMs === null
          ? `${waited} ms`
          : `${Math.min(waited, exchange.maxWaitMs)} of ${exchange.maxWaitMs} ms`
      parts.push(label(this.right - 8, y + 11, words, { class: 'waited', 'text-anchor': 'end' }))
    }
    this.labels.replaceChildren(...parts)
  }

  drawSelected() {
    const exchange = this.selected && (this.drawn.get(this.selected.seq)?.exchange ?? this.selected)
    const row = exchange ? this.rowOf.get(exchange.connection) : undefined
    const isThere = row !== undefined && (exchange.isOpen || exchange.endUs >= this.nowUs - this.spanUs)
    for (const part of [this.shade, this.frame, this.length]) part.classList.toggle('absent', !isThere)
    for (const line of this.wakes.children) {
      line.classList.toggle('chosen', isThere && line.dataset.seq === String(exchange.seq))
    }
    if (!isThere) return
    const from = this.x(exchange.arrivedUs)
    const end = exchange.isOpen ? this.nowUs : exchange.endUs
    const to = Math.max(this.x(end), from + LEAST)
    this.shade.setAttribute('x', from)
    this.shade.setAttribute('width', to - from)
    this.frame.setAttribute('x', from - AROUND)
    this.frame.setAttribute('y', AXIS + ROW * row + (ROW - FRAME) / 2)
    this.frame.setAttribute('width', to - from + 2 * AROUND)
    this.length.textContent = briefMs(end - exchange.arrivedUs)
    const begin = this.x(this.nowUs - this.spanUs) + 30
    this.length.setAttribute('x', Math.min(Math.max((from + to) / 2, begin), this.x(this.nowUs) - 30))
  }

  // Focus: one tab stop, arrows move in time and rows.

  keepTabStop() {
    const kept = this.focused !== null && this.drawn.get(this.focused)?.link
    if (kept) return
    const chosen = this.selected && this.drawn.get(this.selected.seq)?.link
    const link = chosen ?? this.bars.lastElementChild
    this.focused = link ? Number(link.dataset.seq) : null
    if (link) link.setAttribute('tabindex', 0)
  }

  focusBar(exchange) {
    const link = exchange && this.drawn.get(exchange.seq)?.link
    if (!link) return
    if (this.focused !== null) this.drawn.get(this.focused)?.link?.setAttribute('tabindex', -1)
    link.setAttribute('tabindex', 0)
    this.focused = exchange.seq
    link.focus()
  }

  /** The bar beside `exchange` in the direction of an arrow; null at the edge. */
  neighbour(exchange, key) {
    const visible = [...this.drawn.values()].filter(({ link }) => link).map((drawn) => drawn.exchange)
    const row = this.rowOf.get(exchange.connection)
    if (key === 'ArrowLeft' || key === 'ArrowRight') {
      const sign = key === 'ArrowRight' ? 1 : -1
      const beside = visible.filter(
        (other) => other.connection === exchange.connection && sign * (other.arrivedUs - exchange.arrivedUs) > 0,
      )
      return nearest(beside, exchange)
    }
    const step = key === 'ArrowDown' ? 1 : -1
    for (let index = row + step; index >= 0 && index < this.rows.length; index += step) {
      const found = nearest(
        visible.filter((other) => other.connection === this.rows[index].number),
        exchange,
      )
      if (found) return found
    }
    return null
  }

  pressed(event) {
    if (!event.key.startsWith('Arrow') || event.ctrlKey || event.metaKey || event.altKey) return
    const link = event.target.closest('a.exchange')
    const drawn = link && this.drawn.get(Number(link.dataset.seq))
    if (!drawn) return
    event.preventDefault()
    this.focusBar(this.neighbour(drawn.exchange, event.key))
  }

  clicked(event) {
    const link = event.target.closest('a.exchange')
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return
    event.preventDefault()
    this.select(this.drawn.get(Number(link.dataset.seq)).exchange)
  }
}

/** Whether a bar may be counted with the one before it: nothing about it is worth a look of its own. */
function isPlain(exchange) {
  return exchange.parkedUs === null && !exchange.error && !exchange.isOpen && !exchange.hasWoken
}

function isParkedAt({ parkedUs, wokenUs, arrivedUs, isOpen }, us) {
  return parkedUs !== null && arrivedUs <= us && (wokenUs === null ? isOpen : wokenUs > us)
}

function nearest(exchanges, to) {
  let best = null
  for (const other of exchanges) {
    const isCloser = !best || Math.abs(other.arrivedUs - to.arrivedUs) < Math.abs(best.arrivedUs - to.arrivedUs)
    if (isCloser) best = other
  }
  return best
}

function shortened(text, px) {
  const letters = Math.floor(px / 6.4)
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`
}

/** What the shapes and hues mean. */
export function legend() {
  const item = (words, ...shapes) =>
    h('li', {}, s('svg', { width: shapes.wide ?? 20, height: 18, 'aria-hidden': 'true' }, ...shapes), words)
  const solid = (kind) => s('rect', { class: `working kind-${kind}`, x: 5, y: 2, width: 10, height: 15 })
  const sending = { x: 0, y: 2, width: 20, height: 15 }
  return h(
    'ul',
    { class: 'legend' },
    item('Produce', solid('produce')),
    item('Fetch', solid('fetch')),
    item('groups', solid('group')),
    item('other', solid('other')),
    item('parked', s('rect', { class: 'band kind-fetch', x: 0.5, y: 5, width: 19, height: BAND })),
    item(
      'being sent',
      s('rect', { class: 'sending kind-fetch', ...sending }),
      s('rect', { class: 'sending-hatch', fill: 'url(#hatch-fetch)', ...sending }),
    ),
    item(
      'woken by that append',
      s('line', { class: 'wake chosen', x1: 10, x2: 10, y1: 0, y2: 12 }),
      s('circle', { class: 'dot', cx: 10, cy: 12, r: 4 }),
    ),
    item(
      'its time was over',
      s('rect', { class: 'diamond kind-fetch', x: 6.5, y: 6, width: 7, height: 7, transform: 'rotate(45 10 9.5)' }),
    ),
    item('failed', s('path', { class: 'cross', d: 'M6 5l8 8m0 -8l-8 8' })),
  )
}

/** The same as a table, newest first. */
export function requestsTable(exchanges, { time, nameOf, address, result }) {
  const heads = ['time', 'connection', 'request', 'took', 'result']
  const cell = (at, attributes, content) => h('td', { 'data-label': heads[at], ...attributes }, content)
  const rows = [...exchanges]
    .reverse()
    .map((exchange) =>
      h(
        'tr',
        {},
        cell(0, {}, time(exchange.arrivedUs)),
        cell(1, { class: 'clip' }, nameOf(exchange.connection)),
        cell(2, {}, h('a', { href: address(exchange) }, `${exchange.api} ${exchange.correlation}`)),
        cell(3, { class: 'number' }, exchange.isOpen ? 'in hand' : briefMs(exchange.endUs - exchange.arrivedUs)),
        cell(4, { class: 'wraps' }, result(exchange)),
      ),
    )
  return h(
    'table',
    { class: 'rows requests-table' },
    h('caption', {}, `${counted(rows.length, 'request')}, newest first`),
    h('thead', {}, h('tr', {}, ...heads.map((words) => h('th', { scope: 'col' }, words)))),
    h('tbody', {}, ...rows),
  )
}
