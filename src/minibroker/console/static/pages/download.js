// Downloads the messages of a page, or of its search, as lines of JSON, the oldest first.

import { Failure, get, save } from '../api.js'
import { fill, h, setText } from '../dom.js'
import { counted, number, visible } from '../format.js'
import { dialog } from '../keys.js'
import { path, withQuery } from '../router.js'
import { problem } from '../view.js'

const LINES_A_REQUEST = 500

/**
 * @param {string} topic
 * @param {Record<string, string>} query  of the search
 * @param {{rows: any[], begin: string}} page  the one that is shown
 */
export function downloadFrom(topic, query, page) {
  let stopping = new AbortController()
  const said = h('div', { class: 'wide', role: 'status' })
  const one = radio('page', `the ${counted(page.rows.length, 'message')} on this page`)
  const all = radio('all', query.text || query.header || query.until ? 'all that this search finds' : 'all messages from here on')
  if (query.at === 'newest' && !query.text && !query.header && !query.until) setText(all.label, 'all messages of the topic')
  const chosen = page.rows.length > 0 ? one : all
  chosen.field.checked = true
  one.field.disabled = page.rows.length === 0
  const start = h('button', { class: 'button main' }, 'Download')
  const stop = h('button', { type: 'button', class: 'button', onclick: () => stopping.abort() }, 'Stop and save these')
  stop.hidden = true
  const name = visible(topic)
  const box = dialog(
    'Download messages',
    h(
      'form',
      { onsubmit: (event) => { event.preventDefault(); void run(one.field.checked) } },
      h(
        'div',
        { class: 'body stack' },
        h('fieldset', { class: 'stack' }, h('legend', { class: 'hidden-text' }, 'Which messages'), one.element, all.element),
        h('p', { class: 'secondary' }, 'A message is a line of JSON, as ', h('code', {}, `minibroker consume ${name} -o json`), ' prints it. ', h('code', {}, `minibroker produce ${name} --json`), ' sends them again.'),
        said,
      ),
      h('footer', {}, stop, start),
    ),
  )
  let isClosed = false
  box.addEventListener('close', () => { isClosed = true; stopping.abort() })

  /** Reads and saves; what there is, if it is stopped or fails. @param {boolean} isOne */
  async function run(isOne) {
    stopping = new AbortController()
    start.disabled = true
    stop.hidden = false
    /** @type {string[]} */
    const parts = []
    let [count, scanned, cursor] = [0, 0, isOne ? page.begin : '']
    const wanted = isOne ? page.rows.length : Infinity
    /** @type {string[]} */
    const unreadable = []
    let failure = null
    try {
      for (let state = ''; count < wanted && (state === '' || cursor !== '');) {
        const found = await get(withQuery(path('api', 'topics', topic, 'messages', 'lines'), { ...query, cursor, n: Math.min(LINES_A_REQUEST, wanted - count) }), stopping.signal)
        parts.push((query.at === 'newest' ? found.lines.reverse() : found.lines).join(''))
        count += found.lines.length
        scanned += found.scanned
        unreadable.push(...found.unreadable)
        ;({ state, cursor } = found)
        setText(said, `${counted(count, 'message')} found, ${number(scanned)} read …`)
        if (state === 'failed') throw new Failure(502, found.failure)
      }
    } catch (error) {
      if (!stopping.signal.aborted) failure = error
    }
    if (isClosed) return
    start.disabled = false
    stop.hidden = true
    if (count > 0) save(new Blob(query.at === 'newest' ? parts.reverse() : parts, { type: 'application/jsonl' }), `${topic}.jsonl`)
    const ended = stopping.signal.aborted || failure !== null ? ' so far' : ''
    fill(said, failure !== null && problem(failure), ...[...new Set(unreadable)].map((each) => problem(new Error(each))), h('p', { class: count > 0 ? 'good' : '' }, count > 0 ? `${counted(count, 'message')}${ended} saved.` : 'There are none.'))
  }
}

function radio(value, text) {
  const field = h('input', { type: 'radio', name: 'which', value })
  const label = h('span', {}, text)
  return { field, label, element: h('label', { class: 'check' }, field, label) }
}
