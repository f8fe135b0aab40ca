/**
 * What the drawings of this page share: short names, numbers as they write them, hatchings.
 *
 * The rule: text goes in as text nodes, never as markup; a drawing's colours are classes, never attributes.
 */

import { fill, h, s, setText } from '../dom.js'
import { counted, number, visible } from '../format.js'

export { counted, fill, h, number, s, setText, visible }

/** A text in a drawing. */
export function label(x, y, words, attributes = {}, ...more) {
  return s('text', { x, y, ...attributes }, words, ...more)
}

/** Bytes to the last one as long as they can be read: "1,420 B", "588 KiB", "3.6 MiB". @param {number} bytes */
export function size(bytes) {
  if (bytes < 10_240) return `${number(bytes)} B`
  let value = bytes / 1024
  for (const unit of ['KiB', 'MiB', 'GiB']) {
    if (value < 1000) return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`
    value /= 1024
  }
  return `${value.toFixed(1)} TiB`
}

/** Microseconds as milliseconds with three decimals: "212.402". @param {number} us */
export function exactMs(us) {
  const [whole, part] = (us / 1000).toFixed(3).split('.')
  return `${number(Number(whole))}.${part}`
}

/** Microseconds in short: "42 us", "212.4 ms", "12.0 s". @param {number} us */
export function briefMs(us) {
  if (us < 100) return `${Math.round(us)} us`
  return us < 10_000_000 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1_000_000).toFixed(1)} s`
}

/** The width of a text of 12 px before it is drawn. @param {string} text */
export function textWidth(text, { mono = false } = {}) {
  return text.length * (mono ? 7.2 : 6.4)
}

/** The hatchings of all drawings; once a page, since their ids are the page's. */
export function marks() {
  const hatch = (id, gap) =>
    s(
      'pattern',
      { id, width: gap, height: gap, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      s('line', { x1: gap / 2, y1: 0, x2: gap / 2, y2: gap, class: `hatching ${id}` }),
    )
  const kinds = ['fetch', 'produce', 'group', 'other'].map((kind) => hatch(`hatch-${kind}`, 5))
  return s(
    'svg',
    { width: 0, height: 0, class: 'marks', 'aria-hidden': 'true' },
    s('defs', {}, kinds, hatch('hatch-gone', 6)),
  )
}
