// A table of rows that are shown one page at a time: sorted, filtered, refreshed in place, copied as JSON.

import { copyTo } from './copying.js'
import { fill, h, setText } from './dom.js'
import { counted, number, visible } from './format.js'
import { termLink } from './glossary.js'

export const ROWS_A_PAGE = 50
const SHORT_NAME = 20 // characters
const NAME_END = 12
const FEW = 5 // columns, beside which a long name has half of the width
const SOME = 7 // columns, beside which it has a quarter in a narrow window too

/**
 * What a cell shows: text, or text with a link, a title, a class, or any element instead. An element is put in place
 * of the one before only if its `key` differs.
 * @typedef {{text?: string, href?: string, title?: string, kind?: string, node?: Node, key?: string}} CellParts
 * @typedef {string|number|null|undefined|CellParts} Cell
 *
 * @typedef {object} Column
 * @property {string} name
 * @property {string} label
 * @property {(row: any) => Cell} cell
 * @property {string} [term]  a word of the glossary that explains the label
 * @property {boolean} [number]  aligned to the right
 * @property {boolean} [sorts]
 * @property {string} [kind]  classes: name, clip, fill and wraps (the rest of the width), mono, extra (left out below
 *   1120 px)
 * @property {boolean} [head]  names its row
 *
 * @typedef {object} Page
 * @property {any[]} rows  those on this page
 * @property {number} total
 * @property {number} from
 */

export class Table {
  /** @type {Map<string, {row: HTMLTableRowElement, cells: HTMLElement[], shown: string[], data: any}>} */
  #rows = new Map()
  /** @type {Page} */
  #page = { rows: [], total: 0, from: 0 }

  /**
   * @param {object} options
   * @param {string} options.label
   * @param {Column[]} options.columns
   * @param {(row: any) => string} options.key
   * @param {{column: string, descending: boolean}} options.sort
   * @param {(sort: {column: string, descending: boolean}) => void} [options.onSort]
   * @param {(from: number) => void} [options.onPage]
   * @param {(row: any) => string|null} [options.opens]  the address that Enter and a click on the row open
   * @param {number} [options.size]  rows of a page
   * @param {string} [options.noun]
   * @param {string} [options.plural]
   */
  constructor(options) {
    this.options = options
    this.size = options.size ?? ROWS_A_PAGE
    this.heads = options.columns.map((column) => this.#head(column))
    this.body = h('tbody')
    const { columns } = options
    const kinds = ['rows', !columns.some(({ kind }) => /fill|wraps/.test(kind ?? '')) && 'natural', columns.length <= FEW && 'few', columns.length <= SOME && 'some']
    this.table = h(
      'table',
      { 'aria-label': options.label, class: kinds.filter(Boolean).join(' ') },
      h('thead', {}, h('tr', {}, this.heads)),
      this.body,
    )
    this.range = h('span', {})
    this.previous = h('button', { type: 'button', class: 'button', onclick: () => this.#turn(-1) }, 'Previous')
    this.next = h('button', { type: 'button', class: 'button', onclick: () => this.#turn(1) }, 'Next')
    this.copied = h('span', { role: 'status' })
    const copy = h('button', { type: 'button', class: 'button', onclick: () => this.#copy() }, 'Copy as JSON')
    this.pager = h('div', { class: 'pager' }, this.range, this.previous, this.next, h('span', { class: 'end' }, this.copied), copy)
    this.element = h('div', {}, h('div', { class: 'scroll' }, this.table), this.pager)
    this.#showSort()
  }

  /** @param {{column: string, descending: boolean}} sort */
  set sort(sort) {
    this.options.sort = sort
    this.#showSort()
  }

  /** Shows these rows; those that were there before stay the same elements. @param {Page} page */
  show(page) {
    this.#page = page
    const kept = new Map()
    page.rows.forEach((data, at) => {
      const key = this.options.key(data)
      const entry = this.#rows.get(key) ?? this.#made(data)
      entry.data = data
      this.options.columns.forEach((column, index) => this.#update(entry, column, index))
      if (this.body.children[at] !== entry.row) this.body.insertBefore(entry.row, this.body.children[at] ?? null)
      entry.row.setAttribute('aria-rowindex', String(page.from + at + 2))
      kept.set(key, entry)
    })
    for (const [key, entry] of this.#rows) if (!kept.has(key)) entry.row.remove()
    this.#rows = kept
    this.table.setAttribute('aria-rowcount', String(page.total + 1))
    const last = Math.min(page.from + page.rows.length, page.total)
    const all = page.from === 0 && page.rows.length >= page.total
    setText(
      this.range,
      all ? counted(page.total, this.options.noun ?? 'row', this.options.plural) : `${number(page.from + 1)}–${number(last)} of ${number(page.total)}`,
    )
    this.previous.hidden = this.next.hidden = all
    this.previous.disabled = page.from === 0
    this.next.disabled = last >= page.total
  }

  /** Rows that are all here: sorted and cut to a page. @param {any[]} rows @param {number} from @param {(row: any) => any} value */
  showAll(rows, from, value) {
    const { descending } = this.options.sort
    const sorted = [...rows].sort((a, b) => compared(value(a), value(b)) * (descending ? -1 : 1))
    const start = from < sorted.length ? from : 0
    this.show({ rows: sorted.slice(start, start + this.size), total: sorted.length, from: start })
  }

  #head(column) {
    const attributes = { scope: 'col', class: [column.number ? 'number' : '', column.kind ?? ''].join(' ').trim() || null }
    if (!column.sorts) return h('th', attributes, column.term ? termLink(column.term, column.label) : column.label)
    const sort = h('button', { type: 'button', onclick: () => this.#sortBy(column) }, column.label, h('span', { 'aria-hidden': 'true' }))
    const explained = column.term && termLink(column.term, '?')
    return h('th', attributes, column.number ? [explained, sort] : [sort, explained])
  }

  #sortBy(column) {
    const { sort } = this.options
    const descending = sort.column === column.name ? !sort.descending : Boolean(column.number)
    this.sort = { column: column.name, descending }
    this.options.onSort?.(this.options.sort)
  }

  #showSort() {
    const { columns, sort } = this.options
    columns.forEach((column, at) => {
      const arrow = this.heads[at].querySelector('button > span')
      if (arrow === null) return
      const is = column.name === sort.column
      if (is) this.heads[at].setAttribute('aria-sort', sort.descending ? 'descending' : 'ascending')
      else this.heads[at].removeAttribute('aria-sort')
      setText(arrow, is ? (sort.descending ? '↓' : '↑') : '')
    })
  }

  #made(data) {
    const opens = this.options.opens?.(data)
    const cells = this.options.columns.map((column) => {
      const kinds = [column.number ? 'number' : '', column.kind ?? ''].join(' ').trim() || null
      const label = column.head && !column.number ? null : column.label // shown where rows are cards
      return h(column.head ? 'th' : 'td', { scope: column.head ? 'row' : null, class: kinds, 'data-label': label })
    })
    const row = h('tr', { 'data-opens': opens ? '' : null }, cells)
    if (opens) {
      row.addEventListener('click', (event) => {
        if (event.target.closest('a, button, input') || String(getSelection()) !== '') return
        row.querySelector('[data-row-link]')?.click()
      })
    }
    return { row, cells, shown: [], data }
  }

  #update(entry, column, index) {
    const value = column.cell(entry.data)
    const parts = typeof value === 'object' && value !== null ? value : { text: value === null || value === undefined ? '' : String(value) }
    const shown = parts.node ? `node ${parts.key ?? Math.random()}` : JSON.stringify([parts.text, parts.href, parts.title, parts.kind])
    if (entry.shown[index] === shown) return
    entry.shown[index] = shown
    const cell = entry.cells[index]
    const before = cell.firstElementChild
    if (parts.node) {
      fill(cell, parts.node)
      return
    }
    const text = visible(parts.text ?? '')
    if (parts.href) {
      const link = before instanceof HTMLAnchorElement ? before : h('a', { 'data-row-link': column.head ? '' : null })
      link.href = parts.href
      showName(link, text)
      if (link !== before) fill(cell, link)
    }
    else if (parts.kind) fill(cell, h('span', { class: parts.kind, title: parts.title ?? null }, text))
    else setText(cell, text)
    if (parts.title) cell.title = visible(parts.title)
  }

  #turn(by) {
    this.options.onPage?.(Math.max(0, this.#page.from + by * this.size))
  }

  async #copy() {
    const { rows } = this.#page
    await copyTo(this.copied, JSON.stringify(rows, null, 2), counted(rows.length, 'row'))
  }
}

/** A name in its link: where it is too long for its place, it is cut in the middle, since long names differ at their ends. */
function showName(link, name) {
  const isLong = name.length > SHORT_NAME
  if (isLong) fill(link, h('span', {}, name.slice(0, -NAME_END)), h('span', {}, name.slice(-NAME_END)))
  else setText(link, name)
  link.className = isLong ? 'placed' : ''
  if (isLong) link.setAttribute('aria-label', name)
  else link.removeAttribute('aria-label')
}

/**
 * The name of a partition; where it is cut, its number stays.
 * @param {string} topic
 * @param {number|string} partition
 * @param {Record<string, any>} [attributes]  of a link, if it has an `href`
 */
export function partitionName(topic, partition, attributes = {}) {
  const name = visible(topic)
  return h('href' in attributes ? 'a' : 'span', { class: 'placed', title: `${name}-${partition}`, ...attributes }, h('span', {}, name), h('span', {}, `-${partition}`))
}

/** Numbers by size, text by letters, nothing last. */
export function compared(a, b) {
  if (a === b) return 0
  if (a === null || a === undefined) return -1
  if (b === null || b === undefined) return 1
  return a < b ? -1 : 1
}

/**
 * The field that `/` focuses; tells each change when typing has paused.
 * @param {string} value
 * @param {string} placeholder
 * @param {(text: string) => void} onChange
 */
export function filterField(value, placeholder, onChange) {
  let timer = 0
  const field = h('input', { type: 'search', 'data-filter': true, placeholder, 'aria-label': placeholder, value, size: 24, spellcheck: 'false', autocomplete: 'off' })
  field.addEventListener('input', () => {
    clearTimeout(timer)
    timer = setTimeout(() => onChange(field.value.trim()), 150)
  })
  return field
}
