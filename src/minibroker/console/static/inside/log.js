/**
 * "The log of T-P": three strips, each a magnified part of the one above: segments, a segment and its index, batches.
 *
 * The rule: a pure function of what the broker answered, drawn at true proportions; what does not fit is left out,
 * never squeezed. What is looked at is dotted, what leaves is filled, what is not committed is dashed.
 */

import { counted, label, number, s, size, textWidth } from './drawing.js'

const SEGMENTS = { y: 22, height: 28 }
const SEGMENT = { y: 96, height: 16 }
const BATCHES = { y: 222, height: 46 }
const HEIGHT = 316
const GAP = 2
const FLAG = { height: 17, staff: 2, above: 26 }
/** Ticks closer than this would be a grey bar. */
const LEAST_TICK_PX = 3

/**
 * @typedef {object} LogView what the drawing needs
 * @property {{baseOffset: number, sizeBytes: number, isActive: boolean}[]} segments oldest first
 * @property {number} logStartOffset
 * @property {number|null} logStartShare of the first segment's bytes, how many lie below the log start offset; 0 to 1
 * @property {number} chosen the index of the magnified segment
 * @property {{file: string, sizeBytes: number, entryCount: number, intervalBytes: number,
 *             entries: {number: number, position: number}[], entry: {number: number, position: number}|null}} segment
 * @property {{baseOffset: number, lastOffset: number, position: number, sizeBytes: number, state: string}[]} batches
 *           `state` is "passed" (its header was looked at), "leaves", "uncommitted" or "" (none of these)
 * @property {{lso: number, hw: number, leo: number}} ends
 */

/**
 * Draw `view`, `width` px wide.
 * @param {LogView} view
 * @returns {SVGElement}
 */
export function logDrawing(view, width, words) {
  const drawing = s('svg', {
    class: 'log',
    viewBox: `0 0 ${width} ${HEIGHT}`,
    width,
    height: HEIGHT,
    role: 'img',
    'aria-label': words,
  })
  const chosen = segmentsStrip(drawing, view, width)
  const window = segmentStrip(drawing, view, width, chosen)
  batchesStrip(drawing, view, width, window)
  return drawing
}

/** The segments; returns where the chosen one is. */
function segmentsStrip(drawing, view, width) {
  const { segments } = view
  const { y, height } = SEGMENTS
  drawing.append(label(0, 12, 'Segments, as wide as they have bytes', { class: 'caption' }))
  const least = 6
  const total = segments.reduce((sum, segment) => sum + segment.sizeBytes, 0) || 1
  const room = width - segments.length * least - GAP * (segments.length - 1)
  let chosen = { x: 0, width }
  let x = 0
  segments.forEach((segment, index) => {
    const wide = least + (Math.max(room, 0) * segment.sizeBytes) / total
    const isChosen = index === view.chosen
    const inset = isChosen ? 1 : 0
    drawing.append(
      s('rect', {
        class: isChosen ? 'segment chosen' : 'segment',
        x: x + inset,
        y: y + inset,
        width: wide - 2 * inset,
        height: height - 2 * inset,
      }),
    )
    let from = x
    let words = number(segment.baseOffset)
    if (index === 0 && view.logStartShare > 0) {
      const gone = wide * Math.min(view.logStartShare, 1)
      drawing.append(s('rect', { class: 'gone', fill: 'url(#hatch-gone)', x, y, width: gone, height }))
      drawing.append(s('line', { class: 'log-start', x1: x + gone, x2: x + gone, y1: y - 4, y2: y + height }))
      from = x + gone
      words = `log start ${number(view.logStartOffset)}`
    }
    if (segment.isActive) words += ', active'
    const isWide = textWidth(words, { mono: true }) + 12 < wide - (from - x)
    if (isWide) {
      drawing.append(label(from + 7, y + 18, words, { class: isChosen ? 'mono strong' : 'mono' }))
    }
    if (isChosen) chosen = { x, width: wide }
    x += wide + GAP
  })
  return chosen
}

/** The magnified segment with the entries of its offset index; returns which part the batches show. */
function segmentStrip(drawing, view, width, chosen) {
  const { segment, batches } = view
  const { y, height } = SEGMENT
  const below = SEGMENTS.y + SEGMENTS.height
  trapezoid(drawing, chosen.x, chosen.x + chosen.width, below, 0, width, y - 8)
  drawing.append(label(0, y - 8, `${segment.file}, ${size(segment.sizeBytes)}`, { class: 'mono strong halo' }))
  drawing.append(s('rect', { class: 'file', x: 0.5, y: y + 0.5, width: width - 1, height: height - 1 }))
  const at = (position) => (width * position) / Math.max(segment.sizeBytes, 1)
  let last = -LEAST_TICK_PX
  let ticks = ''
  for (const { position } of segment.entries) {
    const x = at(position)
    if (x - last < LEAST_TICK_PX) continue
    ticks += `M${x.toFixed(1)} ${y + height + 2}v5`
    last = x
  }
  if (ticks) drawing.append(s('path', { class: 'ticks', d: ticks }))
  const entries = segment.entryCount
    ? `its offset index: ${counted(segment.entryCount, 'entry', 'entries')}, one after every ${number(segment.intervalBytes)} bytes or more`
    : `its offset index has no entry yet: the first comes after ${number(segment.intervalBytes)} bytes`
  // The name of the chosen entry stands right of it: the caption makes room.
  const isOnTheRight = segment.entry !== null && at(segment.entry.position) < textWidth(entries) + 8
  const place = { class: 'caption halo', 'text-anchor': isOnTheRight ? 'end' : 'start' }
  drawing.append(label(isOnTheRight ? width : 0, y + height + 21, entries, place))
  const first = batches[0]
  const final = batches[batches.length - 1]
  const from = first ? at(first.position) : 0
  const to = final ? Math.max(at(final.position + final.sizeBytes), from + 1) : width
  trapezoid(drawing, from, to, y + height, 0, width, BATCHES.y, true)
  if (segment.entry) {
    const x = at(segment.entry.position)
    drawing.append(s('line', { class: 'entry', x1: x, x2: x, y1: y - 2, y2: y + height + 12 }))
    const words = `entry ${number(segment.entry.number)}`
    const isLeft = x + 8 + textWidth(words, { mono: true }) > width
    const beside = { class: 'mono entry-name halo', 'text-anchor': isLeft ? 'end' : 'start' }
    drawing.append(label(isLeft ? x - 8 : x + 8, y + height + 21, words, beside))
  }
  return { from, to }
}

/** A pale part of the strip above, widening to the strip below. */
function trapezoid(drawing, from, to, y, left, right, bottom, isFirst = false) {
  const shape = s('path', { class: 'magnified', d: `M${from} ${y}H${to}L${right} ${bottom}H${left}Z` })
  if (isFirst) drawing.prepend(shape)
  else drawing.append(shape)
}

function batchesStrip(drawing, view, width) {
  const { batches, ends } = view
  const { y, height } = BATCHES
  if (!batches.length) {
    drawing.append(
      label(0, y + 26, 'There is no batch here: the log ends where the fetch begins.', { class: 'caption' }),
    )
    flags(drawing, [{ words: `LEO ${number(ends.leo)}`, class: 'leo', x: width }], width)
    return
  }
  const total = batches.reduce((sum, batch) => sum + batch.sizeBytes, 0) || 1
  const least = Math.min(66, width / batches.length)
  const room = width - least * batches.length
  let x = 0
  const places = batches.map((batch) => {
    const place = { batch, x, width: least + (room * batch.sizeBytes) / total }
    x += place.width
    return place
  })
  for (const { batch, x: from, width: wide } of places) {
    const box = { x: from + 1, y: y + 1, width: Math.max(wide - 2, 1), height: height - 2 }
    drawing.append(s('rect', { class: `batch ${batch.state}`, ...box }))
    if (textWidth(number(batch.baseOffset), { mono: true }) + 12 < wide) {
      const name = { class: `mono strong ${batch.state}` }
      drawing.append(label(from + 9, y + 20, number(batch.baseOffset), name))
      drawing.append(label(from + 9, y + 37, `${number(batch.sizeBytes)} B`, { class: `mono ${batch.state}` }))
    }
  }
  const placeOf = (offset) => {
    const found = places.find(({ batch }) => offset <= batch.lastOffset)
    return found ? found.x : width
  }
  const last = batches[batches.length - 1].lastOffset + 1
  const flag = (name, offset) => {
    const isFurther = offset > last
    const words = `${name} ${number(offset)}${isFurther ? ' ›' : ''}`
    return { words, class: name.toLowerCase(), x: isFurther ? width : placeOf(offset), offset }
  }
  const wanted = [flag('LSO', ends.lso), flag('HW', ends.hw), flag('LEO', ends.leo)]
  flags(
    drawing,
    wanted.filter(({ offset }) => offset >= batches[0].baseOffset),
    width,
  )
  below(drawing, places, width, view)
}

/** Flags on staffs at the top of the batches; one that would cover another stands higher. */
function flags(drawing, wanted, width) {
  const { y, height } = BATCHES
  const taken = []
  for (const flag of wanted) {
    const wide = textWidth(flag.words, { mono: true }) + 12
    const left = flag.x + wide > width ? flag.x - wide + 1 : flag.x - 1
    let level = flag.class === 'leo' ? 1 : 0
    while (taken.some((other) => other.level === level && left < other.right + 4 && other.left < left + wide + 4))
      level++
    taken.push({ level, left, right: left + wide })
    const top = y - FLAG.above - level * FLAG.above
    const x = Math.min(Math.max(flag.x, 1), width - 1)
    drawing.append(
      s(
        'g',
        { class: `flag ${flag.class}` },
        s('line', { x1: x, x2: x, y1: top, y2: y + height }),
        s('rect', { x: left, y: top, width: wide, height: FLAG.height }),
        label(left + 6, top + 13, flag.words, { class: 'mono strong' }),
      ),
    )
  }
}

/** Below the batches: positions, the headers that are looked at, and what leaves. */
function below(drawing, places, width, { isFetch, headersLookedAt }) {
  const y = BATCHES.y + BATCHES.height
  const part = (state) => {
    const of = places.filter(({ batch }) => batch.state === state)
    if (!of.length) return null
    const last = of[of.length - 1]
    const bytes = of.reduce((sum, { batch }) => sum + batch.sizeBytes, 0)
    return { x: of[0].x, end: last.x + last.width, count: of.length, bytes, position: of[0].batch.position }
  }
  const first = places[0].batch
  const last = places[places.length - 1].batch
  const positions = [{ x: 0, words: number(first.position), anchor: 'start' }]
  const passed = part('passed')
  const leaves = part('leaves')
  const uncommitted = part('uncommitted')
  const final = number(last.position + last.sizeBytes)
  if (leaves && leaves.x > 70 && leaves.x < width - 140)
    positions.push({ x: leaves.x + 1, words: number(leaves.position), anchor: 'start' })
  positions.push({ x: width, words: final, anchor: 'end' })
  for (const { x, words, anchor } of positions) {
    drawing.append(label(x, y + 18, words, { class: 'mono', 'text-anchor': anchor }))
  }
  if (passed) {
    const to = passed.end - 6
    drawing.append(s('line', { class: 'looked-at', x1: passed.x + 2, x2: to - 8, y1: y + 29, y2: y + 29 }))
    drawing.append(s('path', { class: 'looked-at-head', d: `M${to - 10} ${y + 24}v10l11 -5z` }))
    const words = `from the index entry on, ${counted(headersLookedAt ?? passed.count, 'header is', 'headers are')} looked at`
    caption(
      drawing,
      [words, `${counted(passed.count, 'header')} passed`],
      passed.x + 2,
      y + 46,
      passed.end - passed.x,
      'caption',
    )
  }
  if (leaves) {
    const d = `M${leaves.x + 1} ${y + 26}v5H${leaves.end - 2}v-5`
    drawing.append(s('path', { class: 'bracket', d }))
    const [what, short] = isFetch ? ['leave', 'leave'] : ['were appended', 'appended']
    const bytes = number(leaves.bytes)
    const words =
      leaves.count === 1 ? `these ${bytes} bytes ${what}` : `these ${leaves.count} batches ${what}: ${bytes} bytes`
    caption(
      drawing,
      [words, `${size(leaves.bytes)} ${short}`, size(leaves.bytes)],
      leaves.x + 1,
      y + 46,
      width - leaves.x,
      'caption strong',
    )
  }
  if (uncommitted) {
    const room = uncommitted.end - uncommitted.x
    caption(drawing, ['written, not yet committed', 'not committed'], uncommitted.x + 9, y + 46, room, 'caption')
  }
}

/** The first of `choices` that fits into `room`. */
function caption(drawing, choices, x, y, room, name) {
  const words = choices.find((choice) => textWidth(choice) < room)
  if (words) drawing.append(label(x, y, words, { class: name }))
}
