// The log of one partition: its segments, an index, batches and ends, as a minibroker has them on its disk.

import { fill, h, setText } from '../dom.js'
import { bytes, counted, number, time, visible } from '../format.js'
import { size, marks } from '../inside/drawing.js'
import { logDrawing } from '../inside/log.js'
import { logView, logWords } from '../inside/views.js'
import { path, withQuery } from '../router.js'
import { Table } from '../table.js'
import { empty, panel, problem } from '../view.js'
import { setFacts } from './overview.js'

const REFRESH_MS = 2000
const LEAST_PX = 560
const EDGES_PX = 28

/** @param {import('../view.js').View} view @param {string} topic @param {Element} place */
export async function showLog(view, topic, place) {
  const cluster = await view.known()
  if (!cluster.control) {
    fill(
      place,
      panel(
        'This needs minibroker with --control',
        {},
        empty(
          'Kafka’s protocol shows where a log begins and ends, not its files',
          'The part Partitions has start, last stable offset and high watermark. A minibroker shows segments, indexes and batches, too: ',
          h('code', {}, 'minibroker serve --console'),
          '.',
        ),
      ),
    )
    return
  }
  const state = { partition: Number(view.query.get('partition') ?? 0) || 0, offset: view.query.get('offset') ?? '' }
  const partition = h('input', { id: 'log-partition', type: 'number', min: 0, value: state.partition, onchange: () => set({ partition: Number(partition.value) || 0, offset: '' }) })
  const offset = h('input', { id: 'log-offset', type: 'number', min: 0, value: state.offset, placeholder: 'high watermark', onchange: () => set({ offset: offset.value }) })
  const about = h('span', {})
  const facts = h('dl', { class: 'facts' })
  const drawing = h('div', { class: 'body drawn', tabindex: 0, role: 'region', 'aria-label': 'Drawing of the log' })
  const trouble = h('div', {})
  const segments = new Table({
    label: 'Segments',
    noun: 'segment',
    key: (row) => String(row.base_offset),
    sort: { column: 'base_offset', descending: false },
    onSort: () => drawTables(),
    onPage: (from) => { segmentsFrom = from; drawTables() },
    columns: [
      { name: 'name', label: 'file', head: true, kind: 'mono', cell: (row) => ({ text: row.name, href: atOffset(Math.max(row.base_offset, found?.log_start_offset ?? 0)), title: 'shows its batches' }) },
      { name: 'base_offset', label: 'base offset', number: true, sorts: true, cell: (row) => number(row.base_offset) },
      { name: 'size_bytes', label: 'on disk', number: true, sorts: true, cell: (row) => bytes(row.size_bytes) },
      { name: 'entries', label: 'index entries', number: true, sorts: true, cell: (row) => number(row.entries) },
      { name: 'max_timestamp_ms', label: 'latest message (UTC)', kind: 'extra time', cell: (row) => time(row.max_timestamp_ms) },
      { name: 'state', label: 'state', cell: (row) => (row.is_active ? { text: 'active', kind: 'tag good' } : { text: 'closed', kind: 'quiet' }) },
    ],
  })
  const batches = new Table({
    label: 'Batches',
    noun: 'batch',
    plural: 'batches',
    key: (row) => String(row.base_offset),
    sort: { column: '', descending: false },
    columns: [
      { name: 'offsets', label: 'offsets', head: true, number: true, cell: (row) => ({ text: row.base_offset === row.last_offset ? number(row.base_offset) : `${number(row.base_offset)}–${number(row.last_offset)}`, href: withQuery(path('topics', topic, 'messages'), { partition: state.partition, at: row.base_offset }) }) },
      { name: 'position', label: 'position', number: true, cell: (row) => number(row.position) },
      { name: 'bytes', label: 'bytes', number: true, cell: (row) => number(row.bytes) },
      { name: 'records', label: 'records', number: true, cell: (row) => number(row.records) },
      { name: 'leader_epoch', label: 'leader epoch', term: 'leader epoch', number: true, cell: (row) => (row.leader_epoch < 0 ? { text: '–', kind: 'dim' } : String(row.leader_epoch)) },
      { name: 'codec', label: 'codec', cell: (row) => row.codec },
      { name: 'time', label: 'latest message (UTC)', kind: 'extra time', cell: (row) => time(row.max_timestamp_ms) },
      { name: 'kind', label: 'kind', cell: (row) => kindOf(row) },
    ],
  })
  fill(
    place,
    panel(
      'The log',
      { about, end: [h('label', { class: 'field' }, 'partition', partition), h('label', { class: 'field' }, 'around offset', offset)] },
      h('div', { class: 'body' }, facts),
      trouble,
      drawing,
    ),
    panel('Segments', {}, segments.element),
    panel('Batches', { about: 'from the index entry on at which a read of that offset begins' }, batches.element),
  )
  /** @type {any} */
  let found = null
  let segmentsFrom = 0
  let width = 0
  let isFirst = true
  const resized = new ResizeObserver(() => {
    const now = Math.max(drawing.clientWidth - EDGES_PX, LEAST_PX)
    if (now === width) return
    width = now
    draw()
  })
  resized.observe(drawing)
  view.signal.addEventListener('abort', () => resized.disconnect())
  view.main.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('th.mono a') : null
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    set({ offset: new URLSearchParams(link.getAttribute('href')?.split('?')[1]).get('offset') ?? '' })
  }, { signal: view.signal })
  const refresh = view.every(REFRESH_MS, async () => {
    const asked = { ...state }
    let answer
    try {
      answer = await view.get(withQuery(path('api', 'inside', 'log', topic, asked.partition), { offset: asked.offset }))
    } catch (error) {
      if (error.status !== 502 || found === null) throw error
      fill(trouble, problem(error))
      return
    }
    if (asked.partition !== state.partition || asked.offset !== state.offset) return
    fill(trouble)
    found = answer
    setText(about, `${counted(found.segments.length, 'segment')}${found.more === null ? '' : ' and more'}, ${size(found.size_bytes)}`)
    setFacts(facts, [
      ['log start', number(found.log_start_offset)],
      ['last stable offset', number(found.last_stable_offset)],
      ['high watermark', number(found.high_watermark)],
      ['log end', number(found.log_end_offset)],
      ['leader epoch', number(found.leader_epoch)],
      ['index interval', size(found.index_interval_bytes)],
    ])
    draw()
    drawTables()
  })

  function draw() {
    if (found === null || width === 0) return
    const shown = logView(found, null, { isFetch: true })
    fill(drawing, marks(), logDrawing(shown, width, logWords(found, shown, visible(`${topic}-${state.partition}`))))
    if (isFirst) drawing.scrollLeft = drawing.scrollWidth // where the flags of the ends are
    isFirst = false
    if (found.batches.length === 0) drawing.append(h('p', { class: 'secondary' }, found.log_end_offset === found.log_start_offset ? 'It has no messages: nothing is in its files.' : 'No batch begins behind that offset.'))
  }

  function drawTables() {
    if (found === null) return
    segments.showAll(found.segments, segmentsFrom, (row) => row[segments.options.sort.column])
    batches.show({ rows: found.batches, total: found.batches.length, from: 0 })
    if (found.batches_more) setText(batches.range, `the first ${counted(found.batches.length, 'batch', 'batches')}`)
  }

  const atOffset = (at) => withQuery(path('topics', topic, 'log'), { partition: state.partition, offset: at })

  function set(changes) {
    Object.assign(state, changes)
    offset.value = state.offset
    segmentsFrom = 0
    view.remember({ partition: state.partition || null, offset: state.offset })
    refresh()
  }
}

function kindOf(row) {
  if (row.is_control) return { text: 'marker of a transaction', kind: 'tag' }
  if (row.is_transactional) return { text: 'transactional', kind: 'tag held' }
  return row.producer_id >= 0 ? { text: 'idempotent', kind: 'tag' } : ''
}
