// JSON as elements: a member a line, coloured by its kind, folded by its first line. Numbers stay as they were written.

import { fill, h } from './dom.js'
import { counted, visibleLines } from './format.js'

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g
const DEPTH_MAX = 100 // deeper ones are shown as text: a browser lays out elements within elements by recursion
const UNFOLDED = 200 // members; what comes after as many is folded at first
const CLOSES = { '{': '}', '[': ']' }

/**
 * A value: its token, or its members, each with the token of its name in an object.
 * @typedef {string|{opens: '{'|'[', members: {name: string|null, value: Value}[]}} Value
 */

/**
 * JSON as an element; null of what is not JSON, has no members or is nested too deeply.
 * @param {string} text
 * @returns {any}
 */
export function jsonTree(text) {
  const value = parsed(text)
  if (value === null || typeof value === 'string') return null
  let left = UNFOLDED
  return h('div', {}, element(null, value, ''))

  function element(name, value, comma) {
    const label = name === null ? [] : [h('span', { class: 'name' }, visibleLines(name)), ': ']
    if (typeof value === 'string') return h('div', {}, label, h('span', { class: kindOf(value) }, visibleLines(value)), comma)
    const { opens, members } = value
    const end = CLOSES[opens] + comma
    if (members.length === 0) return h('div', {}, label, opens + end)
    const inside = h('div', { class: 'members' })
    const summary = h('summary', {}, label, opens, h('span', { class: 'folded' }, ` ${counted(members.length, opens === '{' ? 'member' : 'element')} `, end))
    const details = h('details', { ontoggle: () => unfold() }, summary, inside, h('div', {}, end))
    left -= members.length
    if (left >= 0) {
      details.open = true
      unfold()
    }
    return details

    /** Makes the members when they are first seen. */
    function unfold() {
      if (details.open && inside.childElementCount === 0) {
        fill(inside, members.map((each, at) => element(each.name, each.value, at < members.length - 1 ? ',' : '')))
      }
    }
  }
}

/** @param {string} token */
const kindOf = (token) => (token[0] === '"' ? 'text' : /[-\d]/.test(token[0]) ? 'digits' : 'word')

/** @param {string} text @returns {Value|null} */
function parsed(text) {
  try {
    JSON.parse(text)
  } catch {
    return null
  }
  const tokens = text.match(TOKEN) ?? []
  /** @type {{opens: '{'|'[', members: {name: string|null, value: Value}[]}[]} */
  const open = []
  let name = null
  /** @type {Value|null} */
  let root = null
  let deepest = 0
  tokens.forEach((token, at) => {
    if (token === '}' || token === ']') open.pop()
    else if (token === '{' || token === '[') {
      const value = { opens: token, members: [] }
      put(value)
      deepest = Math.max(deepest, open.push(value))
    } else if (tokens[at + 1] === ':') name = token
    else if (token !== ',' && token !== ':') put(token)
  })
  return deepest > DEPTH_MAX ? null : root

  function put(value) {
    if (open.length === 0) root = value
    else open[open.length - 1].members.push({ name, value })
    name = null
  }
}
