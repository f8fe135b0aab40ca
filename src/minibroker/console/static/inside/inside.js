/**
 * The page Inside: what the broker does with requests, live.
 *
 * The rule: this module reads and wires, the others draw. Time moves by one transform a frame; what is new is drawn
 * when the stream brings it. A hidden tab and a paused page close the stream, so that the broker stops recording.
 */

import { stream } from '../api.js'
import { termLink } from '../glossary.js'
import { areKeysOn } from '../keys.js'
import { path, withQuery } from '../router.js'
import { empty, live, panel, problem } from '../view.js'
import { ActionsPanel } from './actions.js'
import { clockTime, MonotonicClock, secondsTime } from './clock.js'
import { counted, fill, h, marks, number, setText, size, visible } from './drawing.js'
import { ExchangeStore, kindOf } from './exchanges.js'
import { logDrawing } from './log.js'
import { replicasBody } from './replicas.js'
import { requestBody, requestTitle } from './request.js'
import { button, RequestsPanel } from './requests_panel.js'
import { isNotable, result, storyList } from './story.js'
import { logView, logWords, partitionOf, wheelView } from './views.js'
import { wheelDrawing, wheelWords } from './wheel.js'

const SNAPSHOT_MS = 500
const STILL_MS = 1_000
const STORY_MS = 1_000
const STORY_SENTENCES = 8
const RATE_EVENTS = 20
const LEAST_LOG_PX = 560

const stillness = matchMedia('(prefers-reduced-motion: reduce)')

/** Opens the page; called by the router. @param {import('../view.js').View} view */
export async function show(view) {
  view.title('Inside')
  const cluster = await view.known()
  if (cluster.control) new InsidePage(view, { hasReplicas: cluster.replicas }).start()
  else fill(view.main, h('div', { class: 'head' }, h('h1', {}, 'Inside')), needsControl())
}

/** What to do on a broker that cannot be looked into. */
function needsControl() {
  return panel(
    'This needs minibroker with --control',
    {},
    empty(
      'A broker shows its inside through a control socket.',
      'Start minibroker with one, and this console with the same path: ',
      h('code', {}, 'minibroker serve --control SOCKET'),
      ', then ',
      h('code', {}, 'minibroker console --control SOCKET'),
      '. Or start both at once with ',
      h('code', {}, 'minibroker serve --console'),
      '. Apache Kafka has no such socket; its topics, messages and groups are on the other pages.',
    ),
  )
}

/** One shown page; it ends with the view's signal. */
export class InsidePage {
  /** @param {import('../view.js').View} view */
  constructor(view, { hasReplicas = false } = {}) {
    this.view = view
    this.hasReplicas = hasReplicas
    this.store = new ExchangeStore()
    this.clock = new MonotonicClock()
    this.turns = []
    this.rates = []
    this.run = null
    this.chosenSeq = null
    this.explained = null
    this.log = null
    this.storyAt = -Infinity
    this.words = {
      nameOf: (connection) => this.nameOf(connection),
      time: (us) => clockTime(this.clock.wallMs(us)),
    }
    this.requests = new RequestsPanel(this)
    this.build()
  }

  build() {
    this.summary = h('p', { class: 'about' })
    const { control_broker: broker } = this.view.cluster
    this.trouble = h('div', { role: 'status' })
    this.requestAbout = h('span')
    this.requestBody = h('div')
    this.requestPanel = panel('This request', { about: this.requestAbout }, this.requestBody)
    this.logAbout = h('span', { class: 'about' })
    this.logBody = h('div', { class: 'body', tabindex: 0, role: 'region', 'aria-label': 'Drawing of the log' })
    this.logPanel = panel('The log', { end: this.logAbout }, this.logBody)
    this.wheelBody = h('div', { class: 'body' })
    const where = h('span', {}, 'in the ', termLink('purgatory'), ', on its ', termLink('wheel'))
    this.wheelPanel = panel('Who waits', { about: where }, this.wheelBody)
    this.onlyThis = h('input', { type: 'checkbox', checked: true, onchange: () => this.drawStory() })
    this.storyBody = h('div', { class: 'body' })
    this.only = h('label', { class: 'check about' }, this.onlyThis, 'this request only')
    this.storyPanel = panel('What happened', { end: this.only }, this.storyBody)
    this.replicasBody = h('div', { class: 'body', tabindex: 0, role: 'region', 'aria-label': 'Drawing of the replicas' })
    this.replicasPanel = this.hasReplicas ? panel('The replicas', {}, this.replicasBody) : null
    this.replicasPanel?.classList.add('replicas-panel')
    this.actions = this.view.mayChange ? new ActionsPanel(this) : null
    const names = { request: this.requestPanel, log: this.logPanel, wheel: this.wheelPanel, story: this.storyPanel }
    for (const [name, element] of Object.entries(names)) element.classList.add(`${name}-panel`)
    const left = [this.requests.element, this.logPanel, this.replicasPanel, this.storyPanel, this.actions?.element]
    fill(
      this.view.main,
      h('div', { class: 'head' }, h('h1', {}, broker == null ? 'Inside' : `Inside broker ${broker}`), this.summary),
      this.trouble,
      h(
        'div',
        { class: 'inside' },
        marks(),
        h('div', { class: 'column left' }, left),
        h('div', { class: 'column right' }, this.requestPanel, this.wheelPanel),
      ),
    )
  }

  // Its life

  start() {
    const { signal } = this.view
    if (this.view.query.has('at')) live.set(true)
    this.requests.read()
    if (live.paused) void this.readKept()
    const resized = new ResizeObserver(() => this.resize())
    resized.observe(this.requests.box)
    resized.observe(this.logBody)
    const onLive = () => this.liveChanged()
    live.listeners.add(onLive)
    document.addEventListener('visibilitychange', () => this.listen(), { signal })
    document.addEventListener('keydown', (event) => this.pressed(event), { signal })
    this.view.main.addEventListener('click', (event) => this.clicked(event), { signal })
    signal.addEventListener('abort', () => {
      this.listen()
      resized.disconnect()
      live.listeners.delete(onLive)
    })
    this.wasPaused = live.paused
    this.listen()
    this.view.every(SNAPSHOT_MS, () => this.readPurgatory())
    if (this.replicasPanel) this.view.every(SNAPSHOT_MS, () => this.readReplicas())
    this.choose(Number(this.view.query.get('seq')) || null)
    this.animate()
  }

  get isLive() {
    return !live.paused && !document.hidden && !this.view.signal.aborted
  }

  liveChanged() {
    if (live.paused !== this.wasPaused) {
      this.wasPaused = live.paused
      this.clock.hold(live.paused)
      this.requests.paused()
    }
    this.listen()
  }

  /** Open or close the stream, as the page is live or not. */
  listen() {
    if (this.isLive && !this.listening) {
      this.listening = new AbortController()
      const failed = (failure) => this.showTrouble(failure)
      void stream('/api/stream/inside', { on: ({ data }) => this.heard(data), failed }, this.listening.signal)
    } else if (!this.isLive && this.listening) {
      this.listening.abort()
      this.listening = null
    }
  }

  animate() {
    let last = 0
    const step = (at) => {
      if (this.view.signal.aborted) return
      requestAnimationFrame(step)
      if (live.paused || (stillness.matches && at - last < STILL_MS)) return
      if (stillness.matches) this.requests.show()
      last = at
      this.requests.frame()
    }
    requestAnimationFrame(step)
  }

  /** An event of the stream. */
  heard(event) {
    if (event.error) {
      this.showTrouble(new Error(event.error))
      return
    }
    this.showTrouble(null)
    this.take(event)
    this.turns = event.turns
    this.rates.push(event)
    if (this.rates.length > RATE_EVENTS) this.rates.shift()
    this.showSummary(event)
    if (!stillness.matches) this.requests.show()
    this.followOpen()
    if (performance.now() - this.storyAt > STORY_MS && !this.isStoryOfOne) this.drawStory()
  }

  take(event) {
    if (event.run !== this.run) this.begin(event.run)
    this.clock.heard(event)
    this.store.take(event)
  }

  /** Another process of the broker: what was known is of the one before. */
  begin(run) {
    if (this.run !== null) {
      this.store.forget()
      this.clock.forget()
      this.requests.drawing.clear()
      this.rates = []
      this.turns = []
      this.choose(null)
    }
    this.run = run
  }

  /** What the console keeps of the moment in the address. */
  async readKept() {
    const { atUs, spanUs } = this.requests
    if (atUs === null) return
    await this.view.attempt(async () => {
      const kept = await this.view.get(`/api/inside/exchanges?from=${atUs - spanUs}&to=${atUs}`)
      if (atUs !== this.requests.atUs) return
      this.take(kept)
      setText(this.summary, `paused at ${clockTime(this.clock.wallMs(atUs))}`)
      this.requests.show({ anew: true })
      this.requests.showTable()
      this.drawStory()
    })
  }

  showTrouble(failure) {
    if (failure) fill(this.trouble, problem(failure))
    else if (this.trouble.firstChild) fill(this.trouble)
  }

  showSummary(event) {
    const sum = (key) => this.rates.reduce((all, one) => all + one[key], 0)
    const seconds = sum('interval_us') / 1_000_000 || 1
    const shown = event.kept_every > 1 ? `1 of ${number(event.kept_every)} shown` : 'all of them shown'
    const parts = [
      `${number(Math.round(sum('requests') / seconds))} requests/s, ${shown}`,
      `${number(event.parked)} parked`,
      counted(event.open, 'connection'),
      `watching costs the broker ${(sum('cost_us') / 10_000 / seconds).toFixed(1)} %`,
    ]
    if (event.left_out) parts.push(`${number(event.left_out)} left out`)
    setText(this.summary, parts.join(' \u00a0·\u00a0 '))
    const time = document.getElementById('broker-time')
    if (time) setText(time, `broker time ${clockTime(event.broker_ms).slice(0, 8)}${turnedWords(event.turned_ms)}`)
  }

  resize() {
    this.requests.resize()
    this.requests.show()
    const width = Math.max(Math.floor(this.logBody.clientWidth) - 28, LEAST_LOG_PX)
    if (width !== this.logWidth) {
      this.logWidth = width
      if (this.log) this.drawLog()
    }
  }

  nameOf(connection) {
    const name = this.store.connections.get(connection)?.name
    return name ? `#${connection} ${name}` : `#${connection}`
  }

  nameOfRequest(seq) {
    const known = this.store.get(seq)
    return known ? `${known.api} ${known.correlation} of ${this.nameOf(known.connection)}` : `request ${seq}`
  }

  // Keys and links

  addressOf(seq) {
    return withQuery('/inside', { ...Object.fromEntries(this.view.query), seq })
  }

  pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
    const target = event.target instanceof Element ? event.target : null
    if (target?.matches('input, select, textarea') || document.querySelector('dialog[open]')) return
    if (event.key === 't' && areKeysOn()) this.requests.toggleTable()
    else if (event.key === 'Escape' && this.chosenSeq !== null) this.choose(null)
    else return
    event.preventDefault()
  }

  /** A link to another request opens it in this page. */
  clicked(event) {
    const link = event.target instanceof Element ? event.target.closest('a[href^="/inside?"]') : null
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    this.choose(Number(new URLSearchParams(link.getAttribute('href').split('?')[1]).get('seq')) || null)
  }

  // The chosen request

  choose(seq) {
    this.chosenSeq = seq
    this.explained = this.log = null
    this.view.remember({ seq })
    this.requests.show()
    void this.explain()
  }

  async explain() {
    const seq = this.chosenSeq
    if (seq !== null) {
      try {
        const explained = await this.view.get(`/api/inside/exchanges/${seq}`)
        if (seq !== this.chosenSeq) return
        this.explained = explained
        await this.readLog()
      } catch (error) {
        if (this.view.signal.aborted || seq !== this.chosenSeq) return
        this.explained = this.log = null
        this.drawChosen()
        this.showRequest(`Request ${seq}`, problem(error))
        return
      }
    }
    if (seq === this.chosenSeq && !this.view.signal.aborted) this.drawChosen()
  }

  /** A chosen request that was in hand is explained again once it has ended. */
  followOpen() {
    const outcome = this.explained?.outcome
    if (outcome !== 'waits' && outcome !== 'sending') return
    const now = this.store.get(this.chosenSeq)?.outcome
    if (now && now !== outcome) void this.explain()
  }

  async readLog() {
    const place = partitionOf(this.explained)
    this.log = null
    if (!place) return
    const offset = place.offset === null || place.offset < 0 ? {} : { offset: place.offset }
    try {
      const answer = await this.view.get(withQuery(path('api', 'inside', 'log', place.topic, place.partition), offset))
      this.log = { place, answer, trouble: null }
    } catch (error) {
      this.log = { place, answer: null, trouble: error }
    }
  }

  drawChosen() {
    if (this.explained) {
      const { api, connection, client_id, arrived_us } = this.explained
      setText(
        this.requestAbout,
        `#${connection} ${visible(client_id ?? '(no client id)')}, ${this.words.time(arrived_us)}`,
      )
      const body = requestBody(this.explained, {
        address: ({ seq }) => this.addressOf(seq),
        nameOfRequest: (seq) => this.nameOfRequest(seq),
      })
      body.classList.add(`kind-${kindOf(api)}`)
      this.showRequest(requestTitle(this.explained), body)
    } else {
      setText(this.requestAbout, '')
      const hints = empty(
        'Choose a request to see what the broker did with it.',
        'Click a bar, or go to one with the arrow keys and press Enter.',
      )
      hints.append(button('Take the latest that was parked', () => this.chooseLatest()))
      this.showRequest('This request', hints)
    }
    this.drawLog()
    this.drawWheel()
    this.drawStory()
    this.actions?.chosen()
    this.requests.show()
  }

  showRequest(title, ...parts) {
    setTitle(this.requestPanel, title)
    fill(this.requestBody, parts)
  }

  chooseLatest() {
    const { finished } = this.store
    const found = finished.findLast((exchange) => exchange.parkedUs !== null && this.requests.keep(exchange))
    if (found) this.choose(found.seq)
    else
      this.showRequest(
        'This request',
        empty(
          'No request was parked yet.',
          'A fetch is parked when it finds less than it wants: consume a topic to its end.',
        ),
      )
  }

  // The log

  drawLog() {
    const { place, answer, trouble } = this.log ?? {}
    const name = place ? visible(`${place.topic}-${place.partition}`) : ''
    setText(this.logAbout, '')
    if (!answer) {
      setTitle(this.logPanel, name ? `The log of ${name}` : 'The log')
      const hint = empty(
        'The log of a request is drawn here.',
        'Choose a fetch or a produce: it shows where in the files its records are.',
      )
      fill(this.logBody, trouble ? problem(trouble) : hint)
      return
    }
    const isFetch = this.explained?.api === 'Fetch'
    const view = logView(answer, place.row, { isFetch })
    const leaves = view.batches.some(({ state }) => state === 'leaves')
    const why = leaves ? (isFetch ? ', and how this fetch found its bytes' : ', and what this produce appended') : ''
    setTitle(this.logPanel, `The log of ${name}${why}`)
    setText(this.logAbout, `${counted(answer.segments.length, 'segment')}, ${size(answer.size_bytes)}`)
    fill(this.logBody, logDrawing(view, this.logWidth ?? LEAST_LOG_PX, logWords(answer, view, name)))
  }

  // The replicas

  /** Of the chosen request's partition; else of the latest topic that clients wrote or read. */
  get replicated() {
    const place = this.explained && partitionOf(this.explained)
    if (place) return place
    const latest = this.store.finished.findLast(
      ({ api, topics }) => (api === 'Produce' || api === 'Fetch') && topics.some((each) => !each.startsWith('__')),
    )
    const topic = latest?.topics.find((each) => !each.startsWith('__'))
    return topic ? { topic, partition: 0 } : null
  }

  async readReplicas() {
    const place = this.replicated
    const name = place ? visible(`${place.topic}-${place.partition}`) : ''
    setTitle(this.replicasPanel, name ? `The replicas of ${name}` : 'The replicas')
    const rows = place
      ? (await this.view.get(path('api', 'inside', 'replicas', place.topic, place.partition))).replicas
      : []
    const none = empty('The replicas of a partition are drawn here.', 'Produce to a topic, or choose a request.')
    fill(this.replicasBody, rows.length ? replicasBody(rows) : none)
  }

  // The wheel

  async readPurgatory() {
    const purgatory = await this.view.get('/api/inside/purgatory')
    this.purgatory = purgatory
    this.drawWheel()
  }

  drawWheel() {
    if (!this.purgatory) return
    const name = this.explained ? `${this.explained.api} ${this.explained.correlation_id}` : ''
    const view = wheelView(this.purgatory, this.explained?.wait ?? null, name)
    const words = wheelWords(view)
    const waiting = view.waiting === 1 ? '1 operation waits.' : `${number(view.waiting)} operations wait.`
    fill(this.wheelBody, wheelDrawing(view, `${waiting} ${words}`), h('p', { class: 'wheel-words' }, words))
  }

  // What happened

  get isStoryOfOne() {
    return this.explained !== null && this.onlyThis.checked
  }

  drawStory() {
    this.only.hidden = this.explained === null
    this.storyAt = performance.now()
    const sentences = this.isStoryOfOne ? this.explained.happened.map(([us, words]) => ({ us, words })) : this.latest()
    const none = empty('Nothing has happened yet.', 'Requests that are parked, woken or failed appear here as sentences.')
    fill(this.storyBody, sentences.length ? storyList(sentences, (us) => secondsTime(this.clock.wallMs(us))) : none)
  }

  /** Sentences of the latest requests that are worth one. */
  latest() {
    const { edgeUs, keep } = this.requests
    const notable = []
    for (let index = this.store.finished.length - 1; index >= 0 && notable.length < STORY_SENTENCES; index--) {
      const exchange = this.store.finished[index]
      if (exchange.endUs <= edgeUs && isNotable(exchange) && keep(exchange)) notable.push(exchange)
    }
    return notable.reverse().map((exchange) => ({
      us: exchange.endUs,
      words: `${exchange.api} ${exchange.correlation} of ${this.nameOf(exchange.connection)}: ${result(exchange)}`,
      href: this.addressOf(exchange.seq),
    }))
  }
}

function setTitle(element, title) {
  setText(element.querySelector('h2'), title)
  element.setAttribute('aria-label', title)
}

/** How far the broker's clock was advanced: ", advanced by 2 h". @param {number} ms */
function turnedWords(ms) {
  if (!ms) return ''
  const seconds = ms / 1000
  const [value, unit] =
    seconds < 120
      ? [seconds, 's']
      : seconds < 7_200
        ? [seconds / 60, 'min']
        : seconds < 172_800
          ? [seconds / 3_600, 'h']
          : [seconds / 86_400, 'd']
  return `, advanced by ${number(Math.round(value * 10) / 10)} ${unit}`
}
