// Small drawings that follow the theme.

import { s } from './dom.js'
import { duration, number } from './format.js'

const SPAN_MS = 600_000
const GAP_MS = 30_000 // the console reads each 10 s while no page is open, longer apart where there are many groups

/**
 * A figure over ten minutes as a line, such as the lag of a group; with a gap where it was not read. The text beside it
 * has the same.
 * @param {[number, number][]} points  time in ms and value
 * @param {{width?: number, height?: number, nowMs?: number, what?: string, stretches?: boolean}} [size]
 */
export function timeLine(points, { width = 120, height = 22, nowMs = Date.now(), what = 'lag', stretches = false } = {}) {
  const most = Math.max(1, ...points.map(([, lag]) => lag))
  const x = (at) => ((at - nowMs + SPAN_MS) / SPAN_MS) * width
  const y = (lag) => height - 2 - (lag / most) * (height - 5)
  const parts = pieces(points)
  const line = parts.map((part) => `M${part.map(([at, lag]) => `${x(at).toFixed(1)} ${y(lag).toFixed(1)}`).join('L')}`)
  const area = parts
    .filter((part) => part.length > 1)
    .map((part) => {
      const top = part.map(([at, lag]) => `L${x(at).toFixed(1)} ${y(lag).toFixed(1)}`).join('')
      return `M${x(part[0][0]).toFixed(1)} ${height - 1}${top}L${x(part[part.length - 1][0]).toFixed(1)} ${height - 1}Z`
    })
  const label = described(points, what)
  return s(
    'svg',
    { class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: stretches ? 'none' : null, role: 'img', 'aria-label': label },
    s('title', {}, label),
    s('path', { class: 'base', d: `M0 ${height - 0.5}H${width}` }),
    area.length > 0 && s('path', { class: 'area', d: area.join('') }),
    line.length > 0 && s('path', { d: line.join('') }),
    ...parts
      .filter((part) => part.length === 1)
      .map(([[at, lag]]) => s('circle', { class: 'dot', cx: x(at).toFixed(1), cy: y(lag).toFixed(1), r: 1.5 })),
  )
}

function pieces(points) {
  /** @type {[number, number][][]} */
  const parts = []
  points.forEach((point, at) => {
    if (at === 0 || point[0] - points[at - 1][0] > GAP_MS) parts.push([])
    parts[parts.length - 1].push(point)
  })
  return parts
}

function described(points, what) {
  if (points.length === 0) return `no ${what} seen yet`
  const [first, last] = [points[0], points[points.length - 1]]
  if (points.length === 1) return `${what} ${number(last[1])}`
  return `${what} ${number(first[1])}, and ${number(last[1])} after ${duration((last[0] - first[0]) / 1000)}`
}
