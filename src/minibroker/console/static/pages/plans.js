// What a change that is planned first shows: where it goes to, and the plan.

import { h } from '../dom.js'

const TIME = '2013-01-01T06:00:00Z'

/**
 * A position in partitions: named, a time or an offset.
 * @param {string} id  of its first field
 * @param {[string, string][]} named  positions with their labels, such as ['beginning', 'the beginning']
 * @param {() => void} onChange
 */
export function positionField(id, named, onChange) {
  const options = [['', 'choose …'], ...named, ['time', 'a time'], ['offset', 'an offset, or -5 from the end']]
  const to = h('select', { id, required: true, onchange: () => { arrange(); onChange() } }, options.map(([value, label]) => h('option', { value }, label)))
  const at = h('input', { 'aria-label': 'Time or offset', spellcheck: 'false', autocomplete: 'off', oninput: () => onChange() })
  function arrange() {
    at.hidden = to.value !== 'time' && to.value !== 'offset'
    at.required = !at.hidden
    at.placeholder = to.value === 'time' ? TIME : '42 or -5'
  }
  arrange()
  return {
    element: h('div', { class: 'toolbar' }, to, at),
    /** As the console reads it. */
    read: () => (to.value === 'time' ? `@${at.value.trim()}` : to.value === 'offset' ? at.value.trim() : to.value),
  }
}

/** @param {string[]} heads  the first is that of the rows @param {string[][]} rows */
export function planTable(heads, rows) {
  return h(
    'div',
    { class: 'scroll short', tabindex: 0, role: 'region', 'aria-label': 'Plan' },
    h(
      'table',
      { 'aria-label': 'Plan' },
      h('thead', {}, h('tr', {}, heads.map((each, at) => h('th', { scope: 'col', class: at > 0 ? 'number' : null }, each)))),
      h('tbody', {}, rows.map(([first, ...rest]) => h('tr', {}, h('th', { scope: 'row' }, first), rest.map((each) => h('td', { class: 'number' }, each))))),
    ),
  )
}
