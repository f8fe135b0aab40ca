// One topic: its messages, partitions, groups and settings.

import { Failure, change } from '../api.js'
import { fill, h, setText } from '../dom.js'
import { bytes, counted, number, rate, visible } from '../format.js'
import { command, commandRow } from '../commands.js'
import { closeAfter, dialog } from '../keys.js'
import { go, path, withQuery } from '../router.js'
import { ROWS_A_PAGE, Table, compared, filterField } from '../table.js'
import { empty, panel } from '../view.js'
import { deleteRecords } from './delete_records.js'
import { ONLY_FETCHES } from './groups.js'
import { showMessages } from './messages.js'
import { settingsTable } from './settings.js'

const REFRESH_MS = 3000
const TABS = ['messages', 'partitions', 'groups', 'settings', 'log']

/** @param {import('../view.js').View} view */
export async function show(view) {
  const { topic } = view.params
  const tab = view.params.tab ?? TABS[0]
  view.title(`${topic}, ${tab}`)
  const about = h('span', { class: 'about' })
  const end = view.forChanges(h('div', { class: 'end' }))
  const place = h('div', {})
  const links = TABS.map((each) =>
    h('a', { href: path('topics', topic, each), 'aria-current': each === tab ? 'page' : null }, each[0].toUpperCase() + each.slice(1)),
  )
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, visible(topic)), about, end),
    h('nav', { class: 'tabs', 'aria-label': 'Parts of the topic' }, links),
    place,
  )
  const described = (found) => {
    setText(about, `${counted(found.partitions, 'partition')}, ${counted(found.replication, 'replica')}${found.internal ? ', internal' : ''}`)
    if (!found.internal && end.childElementCount === 0) fill(end, actionsOf(topic, found))
  }
  const tabs = { partitions: showPartitions, messages: showMessages, groups: showGroups, settings: showSettings, log: showLog }
  const shown = tabs[/** @type {keyof typeof tabs} */ (tab)]
  if (shown === undefined) {
    fill(place, empty('There is nothing at this address', 'Choose a part of the topic above.'))
    return
  }
  void describe()
  await shown(view, topic, place)

  /** What the heading has, beside the part that is shown: neither waits for the other. */
  async function describe() {
    try {
      described(await view.until(() => view.get(`${path('api', 'topics', topic)}?n=0`)))
    } catch (error) {
      if (view.signal.aborted || !(error instanceof Failure) || error.status !== 404) return // the part shows others
      view.close()
      view.report({ failure: null })
      fill(place, panel('No such topic', {}, empty(`Topic ${visible(topic)} does not exist`, h('a', { href: '/topics' }, 'Topics'), ' lists those that do.')))
    }
  }
}

function actionsOf(topic, found) {
  return [
    h('button', { type: 'button', class: 'button', onclick: () => grow(topic, found.partitions) }, 'Add partitions'),
    h('button', { type: 'button', class: 'button danger', onclick: () => deleteRecords(topic, found.partitions, () => go(location.pathname + location.search)) }, 'Delete messages'),
    h('button', { type: 'button', class: 'button danger', onclick: () => remove(topic) }, 'Delete topic'),
  ]
}

/** Its drawing is a module that the other parts do not need. */
async function showLog(view, topic, place) {
  const { showLog: show } = await import('./log.js')
  await show(view, topic, place)
}

/** @param {import('../view.js').View} view */
function showPartitions(view, topic, place) {
  const state = { from: Number(view.query.get('from') ?? 0) || 0, sort: view.query.get('sort') ?? 'partition' }
  const table = new Table({
    label: 'Partitions',
    noun: 'partition',
    key: (row) => String(row.partition),
    sort: { column: state.sort.replace('-', ''), descending: state.sort.startsWith('-') },
    onSort: (sort) => set({ sort: (sort.descending ? '-' : '') + sort.column, from: 0 }),
    onPage: (from) => set({ from }),
    opens: (row) => withQuery(path('topics', topic, 'messages'), { partition: row.partition }),
    columns: [
      { name: 'partition', label: 'partition', head: true, sorts: true, number: true, cell: (row) => ({ text: String(row.partition), href: withQuery(path('topics', topic, 'messages'), { partition: row.partition }) }) },
      { name: 'start', label: 'start', term: 'start', number: true, cell: (row) => number(row.start) },
      { name: 'stable', label: 'last stable', term: 'last stable', number: true, cell: (row) => (row.stable !== null && row.stable < row.end ? { text: number(row.stable), kind: 'held', title: 'an open transaction holds it back' } : number(row.stable)) },
      { name: 'end', label: 'high watermark', term: 'high watermark', number: true, cell: (row) => number(row.end) },
      { name: 'log_end', label: 'log end', term: 'log end', number: true, kind: 'own', cell: (row) => number(row.log_end) },
      { name: 'messages', label: 'messages', number: true, kind: 'less', cell: (row) => number(row.end === null || row.start === null ? null : row.end - row.start) },
      { name: 'bytes', label: 'on disk', number: true, cell: (row) => bytes(row.bytes) },
      { name: 'segments', label: 'segments', number: true, kind: 'own', cell: (row) => ({ text: number(row.segments), href: row.segments === null ? undefined : withQuery(path('topics', topic, 'log'), { partition: row.partition }) }) },
      { name: 'rate', label: '/s in', number: true, kind: 'less', cell: (row) => rate(row.rate) },
      { name: 'leader', label: 'leader', number: true, sorts: true, cell: (row) => (row.leader === null ? { text: 'none', kind: 'bad' } : String(row.leader)) },
      { name: 'epoch', label: 'epoch', term: 'leader epoch', number: true, kind: 'extra', cell: (row) => (row.epoch === null ? { text: '–', kind: 'dim' } : number(row.epoch)) },
      { name: 'replicas', label: 'on brokers', cell: (row) => row.replicas.join(', ') },
      { name: 'isr', label: 'in sync', term: 'in sync', cell: (row) => (row.isr.length < row.replicas.length ? { text: row.isr.length === 0 ? 'none' : `only ${row.isr.join(', ')}`, kind: 'bad' } : 'all') },
    ],
  })
  fill(place, panel('Partitions', {}, table.element))
  table.element.classList.add('both')
  table.element.classList.toggle('without-own', view.cluster !== null && !view.cluster.control)
  const refresh = view.every(REFRESH_MS, async () => {
    const found = await view.get(withQuery(path('api', 'topics', topic), { ...state, n: ROWS_A_PAGE }))
    table.element.classList.toggle('without-own', found.rows.every((row) => row.log_end === null))
    table.show(found)
  })
  function set(changes) {
    Object.assign(state, changes)
    view.remember({ from: state.from || null, sort: state.sort === 'partition' ? null : state.sort })
    refresh()
  }
}

/** @param {import('../view.js').View} view */
function showGroups(view, topic, place) {
  const inside = h('div', {})
  const about = h('span', {})
  const table = new Table({
    label: 'Groups that read this topic',
    noun: 'group',
    key: (row) => row.group,
    sort: { column: 'lag', descending: true },
    opens: (row) => path('groups', row.group),
    onSort: () => draw(),
    onPage: (start) => draw(start),
    columns: [
      { name: 'group', label: 'group', head: true, sorts: true, kind: 'name', cell: (row) => ({ text: row.group, href: path('groups', row.group), title: row.group }) },
      { name: 'only_fetches', label: 'position', sorts: true, term: 'fetches only', cell: (row) => (row.only_fetches ? { text: ONLY_FETCHES, kind: 'tag' } : 'committed') },
      { name: 'partitions', label: 'partitions', number: true, sorts: true, cell: (row) => number(row.partitions) },
      { name: 'lag', label: 'lag here', number: true, sorts: true, term: 'lag', cell: (row) => number(row.lag) },
    ],
  })
  /** @type {any[]} */
  let rows = []
  let from = 0
  const draw = (start = from) => {
    from = start
    table.showAll(rows, from, (row) => row[table.options.sort.column])
  }
  fill(place, panel('Groups', { about }, inside))
  view.every(REFRESH_MS, async () => {
    const found = await view.get(path('api', 'topics', topic, 'groups'))
    rows = found.rows
    setText(about, found.looked_through < found.all ? `among the first ${number(found.looked_through)} of ${counted(found.all, 'group')}` : '')
    if (rows.length === 0) {
      fill(inside, empty('No group has committed offsets of this topic', 'A consumer with a group.id does: ', h('code', {}, `minibroker consume ${visible(topic)} --group billing`), '.'))
      return
    }
    if (table.element.parentElement !== inside) fill(inside, table.element)
    draw()
  })
}

/** @param {import('../view.js').View} view */
function showSettings(view, topic, place) {
  return showSettingsAt(view, ['--topic', topic], path('api', 'topics', topic, 'settings'), 'of this topic, or what it takes from its broker', place)
}

/**
 * The settings of a topic or a broker, which its address below /api answers and takes.
 * @param {import('../view.js').View} view @param {string[]} subject  as options of a command
 * @param {string} address @param {string} about @param {Element} place
 */
export async function showSettingsAt(view, subject, address, about, place) {
  await view.known()
  const state = { filter: view.query.get('filter') ?? '' }
  /** @type {any[]} */
  let rows = []
  const draw = () => {
    const words = state.filter.toLowerCase().split(/\s+/)
    const shown = rows.filter((row) => words.every((word) => row.name.includes(word)))
    table.showAll(shown, 0, (row) => (table.options.sort.column === 'source' ? [row.is_default ? 1 : 0, row.name].join() : row.name))
  }
  const table = settingsTable({
    mayChange: view.mayChange,
    subject,
    change: (changes) => change('POST', address, changes),
    done: () => refresh(),
    onSort: draw,
  })
  fill(
    place,
    panel(
      'Settings',
      {
        about: `${about}${view.mayChange ? '; choose one to change it' : ''}`,
        end: filterField(state.filter, 'Filter settings', (filter) => { state.filter = filter; view.remember({ filter }); draw() }),
      },
      table.element,
    ),
  )
  // Again and again: in a cluster with ZooKeeper a change takes effect a moment later.
  const refresh = view.every(REFRESH_MS, async () => {
    rows = (await view.get(address)).rows
    rows.sort((a, b) => compared(a.name, b.name))
    draw()
  })
}

function grow(topic, partitions) {
  const said = h('span', { class: 'said', role: 'alert' })
  const value = h('input', { id: 'grow-to', type: 'number', min: partitions + 1, value: partitions + 1 })
  const box = dialog(
    `Add partitions to ${visible(topic)}`,
    h(
      'form',
      {
        onsubmit: async (event) => {
          event.preventDefault()
          const grown = () => change('POST', path('api', 'topics', topic, 'partitions'), { partitions: Number(value.value) })
          await closeAfter(box, said, grown, () => go(path('topics', topic, 'partitions')))
        },
      },
      h(
        'div',
        { class: 'form body' },
        h('label', { for: 'grow-to' }, 'Partitions'),
        value,
        h('p', { class: 'wide secondary' }, 'Messages stay where they are. New messages of a key may go to another partition than those before them.'),
      ),
      commandRow(() => command(['topics', 'grow', '--partitions', value.value], [topic])),
      h('footer', {}, said, h('button', { class: 'button main' }, 'Add partitions')),
    ),
  )
}

function remove(topic) {
  const said = h('span', { class: 'said', role: 'alert' })
  const confirm = h('input', { id: 'delete-name', autocomplete: 'off', spellcheck: 'false', oninput: () => { button.disabled = confirm.value !== topic } })
  const button = h('button', { class: 'button danger', disabled: true }, 'Delete topic and messages')
  const box = dialog(
    `Delete topic ${visible(topic)}`,
    h(
      'form',
      {
        onsubmit: async (event) => {
          event.preventDefault()
          await closeAfter(box, said, () => change('DELETE', path('api', 'topics', topic)), () => go('/topics'))
        },
      },
      h('div', { class: 'form body' }, h('p', { class: 'wide' }, 'All its messages are lost.'), h('label', { for: 'delete-name' }, 'Write ', h('b', {}, visible(topic)), ' to be sure'), confirm),
      commandRow(() => command(['topics', 'delete'], [topic])),
      h('footer', {}, said, button),
    ),
  )
  confirm.focus()
}

