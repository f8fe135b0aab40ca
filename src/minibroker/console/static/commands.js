// The command that does what a form does: the form shows it, and copies it.

import { copyTo } from './copying.js'
import { h, setText } from './dom.js'
import { visible } from './format.js'

let bootstrap = ''

/** The address that commands name. @param {string} address */
export function knowBootstrap(address) {
  bootstrap = address
}

/** A word as a shell reads it. @param {string|number} word */
export function quoted(word) {
  const text = String(word)
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/**
 * A command of this cluster. A name behind `--` may begin with a dash.
 * @param {string[]} words  the command, and options with their values
 * @param {(string|number)[]} [names]
 */
export function command(words, names = []) {
  const all = ['minibroker', ...words, ...(bootstrap === '' ? [] : ['-b', bootstrap]), ...(names.some((each) => String(each).startsWith('-')) ? ['--'] : []), ...names]
  return all.map(quoted).join(' ')
}

/** An option with its value, if it has one. @param {string} name @param {any} value @returns {string[]} */
export const option = (name, value) => (value === '' || value === null || value === undefined ? [] : [name, String(value)])

/**
 * The row of a form that copies its command, and shows it then: the same can be done without this page.
 * @param {() => string} line  as the form is filled in now
 */
export function commandRow(line) {
  const said = h('span', { class: 'secondary', role: 'status' })
  const shown = h('code', {})
  const copy = () => {
    setText(shown, visible(line()))
    return copyTo(said, line(), 'Command')
  }
  return h('div', { class: 'command' }, h('button', { type: 'button', class: 'button', onclick: copy }, 'Copy the command for this'), said, shown)
}
