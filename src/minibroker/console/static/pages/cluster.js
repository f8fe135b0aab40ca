// What the pages of the cluster share: their heading, and a list that the console filters, sorts and cuts.

import { fill, h, setText } from '../dom.js'
import { counted, number } from '../format.js'
import { commandRow } from '../commands.js'
import { closeAfter, dialog } from '../keys.js'
import { withQuery } from '../router.js'
import { ROWS_A_PAGE, Table, filterField } from '../table.js'
import { empty, panel, sentences } from '../view.js'

const REFRESH_MS = 5000
const PARTS = [['/brokers', 'Brokers'], ['/acls', 'ACLs'], ['/users', 'Users'], ['/quotas', 'Quotas']]

/** The heading of a page of the cluster. @param {string} title @param {string} at  the part that it belongs to */
export function heading(title, at, ...more) {
  const links = PARTS.map(([href, label]) => h('a', { href, 'aria-current': href === at ? 'page' : null }, label))
  return [h('div', { class: 'head' }, h('h1', {}, title), ...more), h('nav', { class: 'tabs', 'aria-label': 'Parts of the cluster' }, links)]
}

/**
 * @typedef {object} List
 * @property {string} at  the page's address; that of its JSON is the same below /api
 * @property {string} title
 * @property {string} about
 * @property {string} noun
 * @property {string} [plural]
 * @property {string} sort  the column that it is sorted by at first
 * @property {(row: any) => string} key
 * @property {(row: any) => string|null} [opens]
 * @property {(refresh: () => void) => import('../table.js').Column[]} columns
 * @property {(found: any) => any} none  what to show where there are no rows
 * @property {(found: any) => boolean} [takes]  whether the cluster takes a new one, from what it answered
 * @property {string} [add]  the label of the button that adds one
 * @property {(refresh: () => void) => void} [onAdd]
 */

/** Shows a list of the cluster. @param {import('../view.js').View} view @param {List} list */
export function showList(view, list) {
  view.title(list.title)
  const state = { filter: view.query.get('filter') ?? '', sort: view.query.get('sort') ?? list.sort, from: Number(view.query.get('from') ?? 0) || 0 }
  const about = h('span', { class: 'about' })
  const place = h('div', {})
  const add = list.add !== undefined && view.forChanges(h('button', { type: 'button', class: 'button main', onclick: () => list.onAdd?.(refresh) }, list.add))
  const table = new Table({
    label: list.title,
    noun: list.noun,
    plural: list.plural,
    key: list.key,
    sort: { column: state.sort.replace('-', ''), descending: state.sort.startsWith('-') },
    opens: list.opens,
    onSort: (sort) => set({ sort: (sort.descending ? '-' : '') + sort.column, from: 0 }),
    onPage: (from) => set({ from }),
    columns: list.columns(() => refresh()),
  })
  const field = filterField(state.filter, `Filter ${list.plural ?? `${list.noun}s`}`, (filter) => set({ filter, from: 0 }))
  fill(view.main, heading('Cluster', list.at, about), panel(list.title, { about: list.about, end: [field, add] }, place))
  const refresh = view.every(REFRESH_MS, async () => {
    let found
    try {
      found = await view.get(withQuery(`/api${list.at}`, { ...state, n: ROWS_A_PAGE }))
    } catch (error) {
      if (error.status !== 501) throw error
      setText(about, '')
      fill(place, h('div', { class: 'empty' }, h('p', {}, ...sentences(error.message))))
      return
    }
    if (add) add.disabled = list.takes?.(found) === false
    setText(about, found.total === found.all ? counted(found.all, list.noun, list.plural) : `${number(found.total)} of ${counted(found.all, list.noun, list.plural)}`)
    if (found.total > 0) {
      if (table.element.parentElement !== place) fill(place, table.element)
      table.show(found)
    } else fill(place, found.all > 0 ? empty(`No ${list.noun} contains “${state.filter}”`, 'Clear the filter to see all.') : list.none(found))
  })

  function set(changes) {
    Object.assign(state, changes)
    view.remember({ filter: state.filter, sort: state.sort === list.sort ? null : state.sort, from: state.from || null })
    refresh()
  }
}

/**
 * The last column: what can be done with each row, where this tab may change things.
 * @param {import('../view.js').View} view
 * @param {(row: any) => string} what  names the row for a screen reader
 * @param {Record<string, (row: any) => void>} actions  by the labels of their buttons
 */
export function actions(view, what, actions) {
  const buttons = (row) => Object.entries(actions).map(([label, run]) => h('button', { type: 'button', class: 'button', 'aria-label': `${label} ${what(row)}`, onclick: () => run(row) }, label))
  return {
    name: 'change',
    label: 'change',
    cell: (row) => (view.mayChange ? { node: h('div', { class: 'actions' }, buttons(row)), key: JSON.stringify(row) } : ''),
  }
}

/**
 * Asks before something is done that cannot be undone.
 * @param {string} title @param {any} body @param {string} label @param {() => string} line  the command that does it
 */
export function ask(title, body, label, line, work, done) {
  const said = h('span', { class: 'said', role: 'alert' })
  const button = h('button', { type: 'button', class: 'button danger', onclick: () => closeAfter(box, said, work, done) }, label)
  const box = dialog(title, h('p', { class: 'body' }, body), commandRow(line), h('footer', {}, said, button))
}

/**
 * A dialog with a form. `send` may throw a Failure, which is shown in it.
 * @param {string} title @param {string} label  of the button @param {any[]} content
 * @param {() => string} line  the command that does it @param {() => Promise<unknown>} send @param {() => void} done
 */
export function form(title, label, content, line, send, done) {
  const said = h('span', { class: 'said', role: 'alert' })
  const box = dialog(
    title,
    h(
      'form',
      { onsubmit: (event) => { event.preventDefault(); void closeAfter(box, said, send, done) } },
      h('div', { class: 'form body' }, content),
      commandRow(line),
      h('footer', {}, said, h('button', { class: 'button main' }, label)),
    ),
  )
  box.querySelector('.body input, .body select')?.focus()
}

/** A select of values with their labels. @param {string} id @param {string[][]} options @param {() => void} [onchange] */
export const choice = (id, options, onchange) => h('select', { id, onchange }, options.map(([value, label]) => h('option', { value }, label)))

/** A field of text. @param {string} id @param {object} [more] */
export const text = (id, more = {}) => h('input', { id, type: 'text', spellcheck: 'false', autocomplete: 'off', ...more })

/** A field below its label. @param {any} field @param {string} label */
export const labelled = (field, label) => [h('label', { for: field.id }, label), field]
