/**
 * "The replicas of T-P": a column for each, with its log end offset, its high watermark, and whom it waits for.
 *
 * The rule: a pure function of what the brokers answered. All columns have one scale, from the least high watermark to
 * the greatest log end offset; a column is as high as its log, and what is not committed in it is hatched.
 */

import { h, label, number, s } from './drawing.js'

const COLUMN = 148
const BAR = { width: 56, top: 26, height: 110 }
const HEIGHT = 156
const LEAST_SPAN = 10

/** @param {any[]} rows what /api/inside/replicas answers */
export function replicasDrawing(rows, words) {
  const width = rows.length * COLUMN
  const known = rows.map(({ replica }) => replica).filter(Boolean)
  const top = Math.max(0, ...known.map((each) => each.log_end_offset))
  const least = Math.min(top, ...known.map((each) => Math.min(each.high_watermark, each.log_end_offset)))
  const base = Math.max(0, Math.min(least - 1, top - LEAST_SPAN))
  const y = (offset) => BAR.top + BAR.height * (1 - Math.max(0, offset - base) / Math.max(1, top - base))
  const drawing = s('svg', { class: 'replicas', width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': words })
  rows.forEach((row, index) => drawing.append(...column(row, index * COLUMN, y)))
  return drawing
}

function column(row, x, y) {
  const bottom = BAR.top + BAR.height
  const { replica } = row
  const parts = [label(x, 14, name(row), { class: 'strong' })]
  if (!replica) {
    parts.push(s('rect', { class: 'absent', x: x + 0.5, y: BAR.top + 0.5, width: BAR.width, height: BAR.height }))
    return parts
  }
  const end = y(replica.log_end_offset)
  const high = y(Math.min(replica.high_watermark, replica.log_end_offset))
  parts.push(
    s('rect', { class: 'committed', x, y: high, width: BAR.width, height: Math.max(0, bottom - high) }),
    s('rect', { class: 'pending', fill: 'url(#hatch-produce)', x, y: end, width: BAR.width, height: Math.max(0, high - end) }),
    s('line', { class: 'leo', x1: x, x2: x + BAR.width, y1: end, y2: end }),
    s('line', { class: 'hw', x1: x, x2: x + BAR.width, y1: high, y2: high }),
    label(x + BAR.width + 6, Math.max(end + 4, BAR.top + 4), `LEO ${number(replica.log_end_offset)}`, { class: 'mono' }),
    label(x + BAR.width + 6, Math.max(high + 4, end + 20, BAR.top + 20), `HW ${number(replica.high_watermark)}`, { class: 'mono hw-name' }),
  )
  return parts
}

function name({ broker_id, replica }) {
  return replica ? `${broker_id} ${replica.role}` : `${broker_id}`
}

/** A sentence for each replica: who waits for whom. @param {any[]} rows */
export function replicaSentences(rows) {
  return rows.map((row) => `Broker ${row.broker_id} ${sentence(row)}.`)
}

function sentence({ replica, is_alive, is_in_sync, waits_for, behind }) {
  if (!replica) return is_alive ? 'does not answer' : 'is gone'
  const epoch = `in epoch ${replica.leader_epoch}`
  if (replica.role === 'leader') {
    const waits = waits_for.length ? `waits for ${listed(waits_for)}` : 'waits for no follower'
    return `leads ${epoch}, and ${waits}`
  }
  const held = replica.hold ? `, ${replica.hold === 'held' ? 'held by a test' : `to stay ${replica.hold}`}` : ''
  const lacks = behind ? `lacks ${number(behind)} of its records` : 'waits for new records'
  return `follows ${replica.leader} ${epoch}, ${is_in_sync ? 'in sync' : 'out of sync'}, and ${lacks}${held}`
}

function listed(ids) {
  return ids.length === 1 ? `broker ${ids[0]}` : `brokers ${ids.slice(0, -1).join(', ')} and ${ids.at(-1)}`
}

/** The body of the panel. @param {any[]} rows */
export function replicasBody(rows) {
  const sentences = replicaSentences(rows)
  return [
    replicasDrawing(rows, sentences.join(' ')),
    h('ul', { class: 'replica-words' }, sentences.map((each) => h('li', {}, each))),
  ]
}
