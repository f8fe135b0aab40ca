/**
 * What happened, as sentences: the text alternative of the drawings, and the label of each bar.
 *
 * The rule: a sentence names the request first, then what it did; the same facts as the drawing, no others.
 */

import { briefMs, counted, h, number } from './drawing.js'

const STRESSED = 'high watermark'

/** One exchange in a sentence: a bar's label. `nameOf` names a connection, `time` writes a moment. */
export function sentence(exchange, { nameOf, time }) {
  const { api, correlation, connection, arrivedUs } = exchange
  return `${api} ${correlation} of ${nameOf(connection)} at ${time(arrivedUs)}: ${result(exchange)}`
}

/** What came of it, without its name. */
export function result(exchange) {
  const { outcome, error, arrivedUs, parkedUs, wokenUs, endUs, maxWaitMs } = exchange
  const parts = []
  if (outcome === 'waits') parts.push(maxWaitMs === null ? 'waits' : `waits, for ${number(maxWaitMs)} ms at most`)
  else if (parkedUs !== null && wokenUs !== null) parts.push(`parked for ${briefMs(wokenUs - parkedUs)}`)
  if (exchange.case) parts.push(`woken by case ${exchange.case}`)
  else if (exchange.wokenBy !== null) parts.push('woken')
  if (exchange.isExpired) parts.push('its time was over')
  if (outcome === 'sending') parts.push('being sent')
  if (outcome === 'closed') parts.push('its connection was closed')
  if (outcome === 'gone') parts.push('its client left first')
  if (outcome === 'silent') parts.push('no response, as it asked for')
  if (error) parts.push(`failed with ${error}`)
  if (exchange.hasWoken) parts.push(`woke ${counted(exchange.woke.length, 'request')}`)
  if (parkedUs === null && !exchange.isOpen) parts.push(`took ${briefMs(endUs - arrivedUs)}`)
  if (exchange.bytesOut !== null && outcome !== 'silent') parts.push(`${number(exchange.bytesOut)} bytes sent`)
  return parts.join(', ')
}

/** Whether an exchange is worth a sentence while nothing is selected. */
export function isNotable(exchange) {
  return exchange.parkedUs !== null || Boolean(exchange.error) || exchange.hasWoken
}

/**
 * A list of sentences, each with its time.
 * @param {{us: number, words: string, href?: string}[]} sentences
 */
export function storyList(sentences, seconds) {
  return h(
    'ol',
    { class: 'story' },
    ...sentences.map(({ us, words, href }) =>
      h('li', {}, h('span', { class: 'when' }, seconds(us)), h('span', {}, ...stressed(words, href))),
    ),
  )
}

/** The sentence with its subject in bold (a link if there is one), and the high watermark in its colour. */
function stressed(words, href) {
  const subject = words.match(/^[A-Z][A-Za-z]+ -?\d+/)?.[0] ?? ''
  const parts = []
  if (subject) parts.push(href ? h('a', { href, class: 'subject' }, subject) : h('b', {}, subject))
  const rest = words.slice(subject.length)
  const at = rest.indexOf(STRESSED)
  if (at < 0) return [...parts, rest]
  return [...parts, rest.slice(0, at), h('b', { class: 'committed' }, STRESSED), rest.slice(at + STRESSED.length)]
}
