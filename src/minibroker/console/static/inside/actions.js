/**
 * "Actions": advance the clock, produce, cause a fault and lift it. There only if the console may change things.
 *
 * The rule: each button is one request of the console, and its effect comes by the stream, as every other request's.
 */

import { change } from '../api.js'
import { path } from '../router.js'
import { panel, problem } from '../view.js'
import { fill, h, setText, visible } from './drawing.js'

const FAULTS = [
  ['delay 500 ms', { kind: 'delay', seconds: 0.5 }],
  ['delay 5 s', { kind: 'delay', seconds: 5 }],
  ['NOT_LEADER_FOR_PARTITION', { kind: 'error', error: 'NOT_LEADER_FOR_PARTITION' }],
  ['REQUEST_TIMED_OUT', { kind: 'error', error: 'REQUEST_TIMED_OUT' }],
  ['close the connection', { kind: 'disconnect' }],
]
const UNIT_SECONDS = { ms: 0.001, s: 1, min: 60, h: 3_600, d: 86_400 }

export class ActionsPanel {
  /** @param {import('./inside.js').InsidePage} page */
  constructor(page) {
    this.page = page
    this.place = null
    this.seconds = h('input', { type: 'text', class: 'seconds', value: '30 s', 'aria-label': 'Advance the clock by' })
    this.to = h('span')
    this.value = h('input', { type: 'text', class: 'value', value: 'hello', 'aria-label': 'Value to produce' })
    this.produceButton = submit('Produce')
    this.fault = h('select', { 'aria-label': 'Fault' }, options(FAULTS))
    this.which = h('select', { 'aria-label': 'Which requests' })
    this.faults = h('ul', { class: 'faults', 'aria-label': 'Faults at work' })
    this.trouble = h('div', { class: 'wide', role: 'status' })
    this.element = panel(
      'Actions',
      { about: 'each is one request, or one call of the control socket' },
      h(
        'div',
        { class: 'body' },
        this.form(() => this.advance(), 'Clock, by', this.seconds, submit('Advance')),
        this.form(() => this.produce(), this.to, this.value, this.produceButton),
        this.form(() => this.cause(), 'Fault', this.fault, 'for', this.which, submit('Inject')),
        this.faults,
        this.trouble,
      ),
    )
    this.element.classList.add('actions-panel')
    this.chosen()
    void this.attempt(() => this.showFaults())
  }

  form(act, ...parts) {
    const onsubmit = (event) => {
      event.preventDefault()
      void this.attempt(act)
    }
    return h('form', { onsubmit }, parts)
  }

  async attempt(act) {
    try {
      await act()
      fill(this.trouble)
    } catch (error) {
      fill(this.trouble, problem(error))
    }
  }

  /** Another request was chosen: its partition and its connection are what is acted on. */
  chosen() {
    const { explained, log } = this.page
    this.place = log?.place ?? null
    const name = this.place && visible(`${this.place.topic}-${this.place.partition}`)
    setText(this.to, name ? `Record to ${name}` : 'Record to the partition of a chosen request')
    this.produceButton.disabled = this.value.disabled = !name
    this.choices = [
      ['each Fetch', { api: 'Fetch' }],
      ['each Produce', { api: 'Produce' }],
    ]
    if (explained) {
      const { api, connection } = explained
      this.choices.unshift([`${api} of #${connection}`, { api, connection }])
    }
    fill(this.which, options(this.choices))
  }

  async advance() {
    const seconds = secondsOf(this.seconds.value)
    if (seconds === null) throw new Error(`"${this.seconds.value}" is not a time; write it as 30 s, 5 min or 2 h`)
    await change('POST', '/api/clock', { seconds })
    await this.page.readPurgatory()
  }

  async produce() {
    const { topic, partition } = this.place
    await change('POST', path('api', 'topics', topic, 'records'), { value: this.value.value, partition })
  }

  async cause() {
    const [, what] = FAULTS[this.fault.selectedIndex]
    const [, which] = this.choices[this.which.selectedIndex]
    await change('POST', '/api/faults', { ...what, ...which })
    await this.showFaults()
  }

  async showFaults() {
    const { faults } = await this.page.view.get('/api/faults')
    fill(
      this.faults,
      faults.filter(({ is_active }) => is_active).map((fault) => this.faultRow(fault)),
    )
  }

  faultRow({ id, text }) {
    const lift = async () => {
      await change('DELETE', path('api', 'faults', id))
      await this.showFaults()
    }
    const onclick = () => void this.attempt(lift)
    return h('li', {}, h('span', {}, visible(text)), h('button', { type: 'button', class: 'button', onclick }, 'Lift'))
  }
}

function submit(words) {
  return h('button', { class: 'button' }, words)
}

function options(choices) {
  return choices.map(([words], index) => h('option', { value: index }, words))
}

/** "30 s", "5 min", "2 h", "1 d" in seconds; a number alone is seconds; null if it is none of these. */
export function secondsOf(text) {
  const [, value, unit] = text.trim().match(/^(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)?$/) ?? []
  return value === undefined ? null : Number(value) * UNIT_SECONDS[unit ?? 's']
}
