/**
 * "Who waits": the purgatory's timing wheel, three rings of 256 slots, and a lens on twelve slots of one.
 *
 * The rule: a ring's slots in use lie between its hand and its end at the top, as the wheel itself has them; a bar is
 * as long as the logarithm of how many are due. The picture is of one moment, the broker's clock at the snapshot.
 */

import { counted, label, number, s } from './drawing.js'

const BOX = { width: 366, centre: { x: 183, y: 178 } }
const RADII = [120, 85, 50]
const RING = 7
const OUTSIDE = 140
const SLOTS = 256
const SCALE = 'a slot: 1 ms in the outer ring, 256 ms, 65.5 s'
const RING_NAMES = ['outer', 'middle', 'inner']
const LENS = { x: 8, y: 378, slots: 12, slot: 29 }
const HEIGHT = 406
const LONG_COUNT = 9_999 // a longer one is set smaller, so that no hand reaches it

/**
 * @typedef {object} WheelView
 * @property {number} waiting all who have a deadline
 * @property {number[]} hands the slot that time has reached, for each ring
 * @property {Map<number, {count: number, kind: string}>[]} slots those in use, for each ring
 * @property {{level: number, slot: number, words: string}|null} selected the slot of the selected request
 * @property {{level: number, slot: number}|null} next the slot that is due next
 */

/**
 * Draw `view`.
 * @param {WheelView} view
 * @returns {SVGElement}
 */
export function wheelDrawing(view, words) {
  const drawing = s('svg', {
    class: 'wheel',
    viewBox: `0 0 ${BOX.width} ${HEIGHT}`,
    width: BOX.width,
    height: HEIGHT,
    role: 'img',
    'aria-label': words,
  })
  const looked = view.selected ?? view.next
  RADII.forEach((radius, level) => ring(drawing, radius, level, view, looked))
  const { x, y } = BOX.centre
  // Beside the rings: within them a hand or a bar would strike it through.
  drawing.append(label(x, 12, SCALE, { class: 'ring-name', 'text-anchor': 'middle' }))
  const waiting = view.waiting > LONG_COUNT ? 'waiting long' : 'waiting'
  drawing.append(label(x, y + 5, number(view.waiting), { class: waiting, 'text-anchor': 'middle' }))
  drawing.append(
    label(x, y + 21, view.waiting === 1 ? 'waits' : 'wait', { class: 'ring-name', 'text-anchor': 'middle' }),
  )
  if (looked) lens(drawing, view, looked)
  return drawing
}

/** Radians of a slot's beginning: slot 0 is at the top, time runs clockwise. */
function angle(slot) {
  return (slot / SLOTS) * 2 * Math.PI - Math.PI / 2
}

function point(radius, at) {
  return [BOX.centre.x + radius * Math.cos(at), BOX.centre.y + radius * Math.sin(at)].map((value) => value.toFixed(2))
}

function arc(radius, from, to) {
  const isLarge = to - from > SLOTS / 2 ? 1 : 0
  return `M${point(radius, angle(from))}A${radius} ${radius} 0 ${isLarge} 1 ${point(radius, angle(to))}`
}

function ring(drawing, radius, level, view) {
  const hand = view.hands[level]
  drawing.append(s('circle', { class: 'ring passed', cx: BOX.centre.x, cy: BOX.centre.y, r: radius }))
  if (hand < SLOTS) drawing.append(s('path', { class: 'ring to-come', d: arc(radius, hand, SLOTS - 0.01) }))
  let ticks = ''
  for (let slot = 0; slot < SLOTS; slot += 8) {
    const length = slot % 64 === 0 ? 3.5 : 1.5
    ticks += `M${point(radius - RING / 2 - 2.5, angle(slot))}L${point(radius - RING / 2 - 2.5 - length, angle(slot))}`
  }
  drawing.append(s('path', { class: 'slots', d: ticks }))
  for (const [slot, { count: due, kind }] of view.slots[level]) {
    const at = angle(slot + 0.5)
    const [x1, y1] = point(radius - 3.5, at)
    const [x2, y2] = point(radius + 7 + 3.4 * Math.log2(Math.max(due, 1)), at)
    drawing.append(s('line', { class: `due kind-${kind}`, x1, y1, x2, y2 }))
  }
  const at = angle(hand)
  const [x1, y1] = point(radius - 11, at)
  const [x2, y2] = point(radius + 5, at)
  drawing.append(
    s('line', { class: 'hand', x1, y1, x2, y2 }),
    s('circle', { class: 'hand-dot', cx: x1, cy: y1, r: 3.2 }),
  )
}

/** The first of the twelve slots around the one looked at: now, if it is near. */
function lensBegin(view, { level, slot }) {
  const hand = view.hands[level]
  const near = slot - hand < LENS.slots - 2 ? hand - 1 : slot - 2
  return Math.min(Math.max(near, 0), SLOTS - LENS.slots)
}

function lens(drawing, view, looked) {
  const { level, slot: chosen } = looked
  const begin = lensBegin(view, looked)
  const end = begin + LENS.slots
  const { x, y, slot: wide } = LENS
  const hand = view.hands[level]
  const at = (slot) => x + (slot - begin) * wide
  // The leader: from an arc beside the slots out of the rings, and down beside them to the lens.
  const radius = RADII[level] + (level === 1 ? 25 : 22)
  const middle = angle((begin + end) / 2)
  const [fromX, fromY] = point(radius, middle)
  const [outX, outY] = point(Math.max(radius, OUTSIDE), middle)
  const edge = Number(fromX) < BOX.centre.x ? x : x + LENS.slots * wide
  const low = Math.min(Math.max(Number(outY) + 30, 60), y - 70)
  drawing.append(s('path', { class: 'leader', d: arc(radius, begin, end) }))
  drawing.append(s('path', { class: 'leader', d: `M${fromX} ${fromY}L${outX} ${outY}L${edge} ${low}V${y - 3}` }))
  drawing.append(
    // At the side on which the leader does not come down, and below its beginning.
    label(edge === x ? x + LENS.slots * wide - 6 : x + 6, y - 52, `slots ${begin} to ${end - 1} of the ${RING_NAMES[level]} ring`, {
      class: 'ring-name halo',
      'text-anchor': edge === x ? 'end' : 'start',
    }),
  )
  const clamped = Math.min(Math.max(hand, begin), end)
  drawing.append(s('rect', { class: 'ring-flat passed', x, y: y - 3, width: LENS.slots * wide, height: 5 }))
  drawing.append(
    s('rect', { class: 'ring-flat to-come', x: at(clamped), y: y - 3, width: (end - clamped) * wide, height: 5 }),
  )
  let nameAt = null
  for (let slot = begin; slot < end; slot++) {
    const due = view.slots[level].get(slot)
    const isChosen = view.selected && slot === chosen
    if (due) {
      const height = 5 + 5.4 * Math.log2(Math.max(due.count, 1))
      drawing.append(
        s('rect', { class: `working kind-${due.kind}`, x: at(slot) + 5, y: y - 3 - height, width: 19, height }),
      )
      drawing.append(
        label(at(slot) + wide / 2, y - 7 - height, number(due.count), { class: 'ring-name', 'text-anchor': 'middle' }),
      )
    }
    if (due || isChosen) {
      drawing.append(label(at(slot) + wide / 2, y + 17, String(slot), { class: 'ring-name', 'text-anchor': 'middle' }))
    }
    if (isChosen) {
      drawing.append(s('rect', { class: 'frame', x: at(slot) + 1, y: y - 46, width: wide - 2, height: 49, rx: 3 }))
      nameAt = slot
    }
  }
  if (hand >= begin && hand < end) {
    const now = at(hand + 0.5)
    drawing.append(s('line', { class: 'hand', x1: now, x2: now, y1: y - 9, y2: y + 5 }))
    const isFree = !view.slots[level].get(hand) && !(view.selected && chosen === hand)
    if (isFree) drawing.append(label(now, y + 17, 'now', { class: 'now-name', 'text-anchor': 'middle' }))
  }
  if (nameAt !== null && view.selected.words) nameOfChosen(drawing, view, nameAt, begin, at)
}

/** The words beside the chosen slot, right of it or left, where no bar stands. */
function nameOfChosen(drawing, view, slot, begin, at) {
  const { y, slots } = LENS
  let right = slot + 1
  while (view.slots[view.selected.level].get(right)) right++
  const isRight = right - begin <= slots - 5
  const x = isRight ? at(right) + 4 : at(slot) - 4
  drawing.append(
    label(x, y - 18, view.selected.words, { class: 'chosen-name halo', 'text-anchor': isRight ? 'start' : 'end' }),
  )
}

/** Below the wheel: how many are due, in words. */
export function wheelWords(view) {
  const [soon, later] = [0, 1].map((level) => total(view.slots[level]))
  const rest = Math.max(view.waiting - soon - later, 0)
  const due = `${counted(soon, 'is', 'are')} due within 256 ms, ${number(later)} within 65.5 s, ${number(rest)} later.`
  return `The strong arc is time to come; a bar is as high as many are due. ${due}`
}

function total(slots) {
  let sum = 0
  for (const { count: due } of slots.values()) sum += due
  return sum
}
